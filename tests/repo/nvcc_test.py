#!/usr/bin/env python3
"""tools/nvcc finds a compiler, or says nothing and succeeds where none can be had: no build fails for want of one."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = Path(os.environ["GLYD_SOURCE_DIR"]) / "tools/nvcc"


class Nvcc(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.tree = Path(work.name).resolve()
        (self.tree / "tools").mkdir()
        shutil.copy(TOOL, self.tree / "tools/nvcc")

    def compiler(self, at, codes="sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120"):
        (self.tree / at).mkdir(parents=True)
        (self.tree / at / "nvcc").write_text(f"#!/bin/sh\nprintf '%s\\n' {codes}\n")
        (self.tree / at / "nvcc").chmod(0o755)
        return str(self.tree / at / "nvcc")

    def found(self, path="/usr/bin:/bin", **env):
        # No index answers: port 1 of this machine.
        run = subprocess.run([self.tree / "tools/nvcc"], capture_output=True, text=True, check=False, env={
            "PATH": path, "HOME": str(self.tree), "CUDA_HOME": str(self.tree / "none"),
            "PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_CONFIG_FILE": "/dev/null", **env})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout.strip()

    def test_the_one_on_the_path_comes_first(self):
        first, home = self.compiler("on/path"), self.compiler("home/bin")
        self.assertEqual(self.found(CUDA_HOME=str(self.tree / "home")), home)
        self.assertEqual(self.found(f"{self.tree}/on/path:/usr/bin:/bin", CUDA_HOME=str(self.tree / "home")), first)

    def test_one_that_lacks_a_gpu_of_ours_is_passed_over(self):
        home = self.compiler("home/bin")
        self.compiler("old/path", "sm_80 sm_86 sm_89 sm_90")
        self.assertEqual(self.found(f"{self.tree}/old/path:/usr/bin:/bin", CUDA_HOME=str(self.tree / "home")), home)

    def test_one_installed_before_is_found(self):
        installed = self.compiler("build/nvcc/lib/python3.11/site-packages/nvidia/cu13/bin")
        self.assertEqual(self.found(), installed)

    def test_off_is_none(self):
        self.compiler("home/bin")
        self.assertEqual(self.found(CUDA_HOME=str(self.tree / "home"), GLYD_CUDA="off"), "")

    def test_without_an_index_there_is_none_and_nothing_is_left(self):
        if shutil.which("nvcc", path="/usr/bin:/bin"):
            self.skipTest("/usr/bin has an nvcc")
        self.assertEqual(self.found(), "")
        self.assertFalse((self.tree / "build/nvcc").exists())


unittest.main()
