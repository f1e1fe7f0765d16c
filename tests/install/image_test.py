#!/usr/bin/env python3
"""The images, built and run as an operator would run them: no network, a read-only root, no user of the machine's own.
The packer packs, glydd serves it to a process inside and to one of the host, stops when told."""
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])
GLYD = Path(os.environ["GLYD_BIN_DIR"]) / "glyd"
STORE = TREE / "build/image"
MOST_BEYOND_BASE_MB = 60
USER = 65532
PODMAN = ["podman", "--root", STORE / "store", "--runroot", STORE / "run", "--storage-driver", "vfs",
          "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--log-level", "error"]
# An engine's own limits may be above what this machine allows.
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
RUN = ["run", "--network", "none", "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges",
       "--ulimit", f"nofile={FILES}:{FILES}", "--ulimit", "nproc=1024:1024"]


def run(*command, good=True):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 77:
        print("skipped:", done.stdout.strip().splitlines()[-1])
        sys.exit(77)
    said = f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}"
    assert (done.returncode == 0) == good, said
    return done.stdout


def serve(work, name):
    inside = [*PODMAN, "exec", name, "glyd"]
    run(*PODMAN, *RUN, "--detach", "--name", name, "-v", f"{work}/models:/models:ro", "-v", f"{work}/run:/run/glydd",
        "localhost/glydd", "--root", "models=/models", "--allow-uid", str(os.getuid()))
    try:
        deadline = time.monotonic() + 60
        while subprocess.run([*PODMAN, "healthcheck", "run", name], capture_output=True).returncode != 0:
            assert time.monotonic() < deadline, run(*PODMAN, "logs", name)
            time.sleep(0.2)
        run(*inside, "load", "m", "models/save", "--wait")
        within = run(*inside, "hash", "m")
        outside = run(GLYD, "--server", f"unix:{work}/run/glydd.sock", "hash", "m")
        assert within == outside and within.count("\n") > 1, (within, outside)
        run(*inside, "doctor")
        assert run(*PODMAN, "exec", name, "id", "-u").strip() == str(USER)
        run(*PODMAN, "exec", name, "touch", "/usr/x", good=False)
        run(*PODMAN, "stop", "--time", "30", name)
        code = run(*PODMAN, "inspect", "--format", "{{.State.ExitCode}}", name).strip()
        assert code == "0", run(*PODMAN, "logs", name)
    finally:
        subprocess.run([*PODMAN, "rm", "--force", "--volumes", name], capture_output=True)


def main():
    for program in ("podman", "runc"):
        if not shutil.which(program):
            print(f"skipped: no {program} here: tools/deps deploy")
            sys.exit(77)
    for target in ("glydd", "packer"):
        said = run(TREE / "tools/image", target)
        print(said, end="")
        beyond = float(re.search(r"([0-9.]+) MB beyond", said)[1])
        assert 0 < beyond < MOST_BEYOND_BASE_MB, said
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)
        for folder in ("models", "run"):
            (Path(work) / folder).mkdir()
            os.chown(Path(work) / folder, USER, USER)
        run(sys.executable, TREE / "tests/data/cases/checkpoints.py", f"{work}/models")
        run(*PODMAN, *RUN, "--rm", "-v", f"{work}/models:/models", "localhost/packer", "pack", "/models/mistral",
            "/models/save")
        run(GLYD, "verify", f"{work}/models/save")
        serve(work, f"glydd-{uuid.uuid4().hex[:8]}")


main()
