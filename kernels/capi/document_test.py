#!/usr/bin/env python3
"""document_test.py CC HEADER LIBRARY: docs/c-api.md's program is built against the library and run."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

cc, header, library = sys.argv[1:]
text = (Path(os.environ["GLYD_SOURCE_DIR"]) / "docs/c-api.md").read_text(encoding="utf-8")
(program,) = re.findall(r"^```c\n(.*?)^```$", text, re.M | re.S)
failed = 0

with tempfile.TemporaryDirectory() as work:
    source, plan = Path(work) / "plan.c", Path(work) / "plan"
    source.write_text(program, encoding="utf-8")
    (Path(work) / "glyd").mkdir()
    (Path(work) / "glyd/glyd_gpu.h").symlink_to(header)
    folder = os.path.dirname(library)
    subprocess.run([cc, "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{work}", source, "-o", plan,
                    f"-L{folder}", f"-Wl,-rpath,{folder}", "-lglyd_gpu"], check=True)
    # Per row: arguments, exit status, and what is said.
    for arguments, code, said in (
            ("4096 4096 17 90", 0, r"route 3 to M 1024, workspace \d+ bytes, 1024 counters"),
            ("4096 4096 65 1089", 0, r"route 4 to M 1792, workspace \d+ bytes, 1024 counters"),
            ("4096 4096 4096 90", 0, r"route 0 to M 9223372036854775807, workspace \d+ bytes, 2048 counters"),
            ("4096 4096 1 75", 1, "plan: the route: cudaErrorNotSupported"),
            ("4095 4096 1 90", 1, "plan: the workspace: cudaErrorInvalidValue"),
            ("4096 4096 1", 1, "plan: the GPU: cudaError(InsufficientDriver|NoDevice|DeviceUninitialized)")):
        run = subprocess.run([plan, *arguments.split()], capture_output=True, text=True, check=False)
        if run.returncode != code or not re.fullmatch(said, (run.stdout + run.stderr).strip()):
            failed = 1
            print(f"plan {arguments}: {run.returncode}, {run.stdout}{run.stderr}")
sys.exit(failed)
