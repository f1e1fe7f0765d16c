#!/usr/bin/env python3
"""tools/package source: the same tarball from two clones of the tree, with all of it; the version that the log of changes
is headed by."""
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])


def run(*command, cwd=TREE, umask=0o22):
    return subprocess.run(command, cwd=cwd, umask=umask, capture_output=True, text=True, check=True).stdout


def main():
    if not (TREE / ".git").exists():
        print("skipped: this tree is no clone")
        sys.exit(77)
    files = set(run("git", "ls-tree", "-r", "--name-only", "HEAD").splitlines())
    with tempfile.TemporaryDirectory() as work:
        made = []
        for name, umask in (("one", 0o22), ("another", 0o77)):
            clone = Path(work) / name
            run("git", "clone", "-q", TREE, clone, umask=umask)
            run("tools/package", "source", cwd=clone, umask=umask)
            (tarball,) = (clone / "build/package").glob("*.tar.gz")
            made.append(tarball)
        assert made[0].read_bytes() == made[1].read_bytes(), "two tarballs of one commit differ"
        version = re.fullmatch(r"glydd-([0-9.]+)\.tar\.gz", made[0].name)[1]
        with tarfile.open(made[0]) as tar:
            held = {m.name.removeprefix(f"glydd-{version}/") for m in tar if not m.isdir()}
        assert held == files, held ^ files
    headed = re.search(r"^## ([0-9.]+)$", (TREE / "CHANGELOG.md").read_text(), re.M)[1]
    assert headed == version, f"CHANGELOG.md has {headed}, CMakeLists.txt {version}"


main()
