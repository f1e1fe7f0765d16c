#!/usr/bin/env python3
"""main_job_test.py CHECKPOINT: the main job on one of the checkpoints of tests/data/cases."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

source = Path(os.environ["GLYD_SOURCE_DIR"])
with tempfile.TemporaryDirectory() as work:
    subprocess.run([sys.executable, source / "tests/data/cases/checkpoints.py", work], check=True)
    job = [sys.executable, source / "tests/demo/main_job.py", os.environ["GLYD_BIN_DIR"],
           Path(work) / sys.argv[1], Path(work) / "job"]
    code = subprocess.run(job).returncode
    left = list((Path(work) / "job").iterdir())
sys.exit(code or (f"left behind: {left}" if left else 0))
