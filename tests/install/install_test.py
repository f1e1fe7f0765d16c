#!/usr/bin/env python3
"""install_test.py BUILD: what `cmake --install` leaves in a prefix of its own works there: the programs, those of
docs/client.md built by find_package and by pkg-config, the completions, the manual pages."""
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["GLYD_SOURCE_DIR"])
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCE / "tests/demo"))
from support import Glyd, Report  # noqa: E402

BUILD = sys.argv.pop(1)


def run(*command, silent=False, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if done.returncode != 0 or (silent and done.stderr):
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = Path(folder.name)
        # Moved after it was installed: nothing in it may know where it is.
        run("cmake", "--install", BUILD, "--prefix", cls.work / "first")
        cls.prefix = (cls.work / "first").rename(cls.work / "prefix")
        run(sys.executable, SOURCE / "tests/data/cases/checkpoints.py", cls.work)
        run(cls.prefix / "bin/glyd", "-q", "pack", cls.work / "mistral", cls.work / "save")
        cls.glyd = Glyd(cls.prefix / "bin", Report(), cls.work)
        cls.addClassCleanup(cls.glyd.stop)
        cls.glyd.start_daemon({"w": cls.work})
        run(*cls.glyd.remote("-q", "load", "m", "w/save", "--wait"))
        cls.there = {**os.environ, "GLYD_SERVER": f"unix:{cls.glyd.socket}"}
        (cls.work / "sources").mkdir()
        for block in re.findall(r"^```cpp\n(.*?)^```$", (SOURCE / "docs/client.md").read_text(), re.M | re.S):
            (cls.work / "sources" / re.match(r"// (\w+\.cc): ", block)[1]).write_text(block)

    def test_programs_find_their_worker_there(self):
        said = run(self.prefix / "bin/glydd", "--check-config", "--state", self.work / "other")
        self.assertIn(str(self.prefix / "libexec/glyd-worker"),
                      os.path.normpath(said.split("worker", 1)[1].split()[1].strip('"')))
        self.assertEqual(run(self.prefix / "bin/glyd", "version").split()[1],
                         run(self.prefix / "bin/glydd", "--version").split()[1])

    def test_cmake_package(self):
        build = self.work / "by-cmake"
        shutil.copy(HERE / "consumer/CMakeLists.txt", self.work / "sources")
        run("cmake", "-G", "Ninja", "-S", self.work / "sources", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        packs = json.loads(run(*self.glyd.remote("-o", "json", "show", "m")))["packs"]
        self.assertEqual(run(build / "product", "m", env=self.there),
                         f"{len(packs)} packs, the same bits on both sides\n")

    def test_pkg_config(self):
        flags = run("pkg-config", "--cflags", "--libs", "glyd_client",
                    env={**os.environ, "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")})
        run("c++", self.work / "sources/tensor.cc", "-o", self.work / "tensor", *shlex.split(flags))
        for line in run(*self.glyd.remote("hash", "m")).splitlines():
            digest, name = line.split()
            got = subprocess.run([self.work / "tensor", "m", name], env=self.there, capture_output=True, check=True)
            self.assertEqual(hashlib.sha256(got.stdout).hexdigest(), digest, name)

    def test_c_library(self):
        (self.work / "gpu.c").write_text(
            '#include "glyd/glyd_gpu.h"\nint main(void) { return glyd_gpu_api_version() == 5 ? 0 : 1; }\n')
        run("cc", "-std=c11", f"-I{self.prefix}/include", self.work / "gpu.c", "-o", self.work / "gpu",
            f"-L{self.prefix}/lib", "-lglyd_gpu")
        run(self.work / "gpu", env={**os.environ, "LD_LIBRARY_PATH": f"{self.prefix}/lib"})

    def test_bash_completion(self):
        script = self.prefix / "share/bash-completion/completions/glyd"
        said = run("bash", "-c", f"source {script}; COMP_WORDS=(glyd unl); COMP_CWORD=1; "
                   '"$(complete -p glyd | sed -E "s/.*-F ([^ ]+).*/\\1/")" glyd unl; echo "${COMPREPLY[@]}"')
        self.assertEqual(said.split(), ["unload"])

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here")
    def test_zsh_completion(self):
        found = self.prefix / "share/zsh/site-functions"
        # As compinit finds it, and as it completes the first time: in a shell that someone types into.
        said = run("zsh", "-f", "-c", f"""
            zmodload zsh/zpty; zpty z zsh -f -i
            zpty -w z 'PATH={self.prefix}/bin:$PATH; fpath=({found} $fpath)'
            zpty -w z 'autoload -Uz compinit; compinit -D -u; echo $_comps[glyd] read""y'
            zpty -r z seen '*_glyd ready*'; zpty -w -n z $'glyd unl\t'; zpty -r z seen '*glyd unload*'
            print completed""", timeout=60)
        self.assertEqual(said.split(), ["completed"])

    @unittest.skipUnless(shutil.which("man"), "no man here")
    def test_manual_pages(self):
        pages = {name: run("man", "--warnings", "-l", self.prefix / f"share/man/man{name[-1]}/{name}", silent=True,
                           env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
                 for name in ("glyd.1", "glydd.8")}
        for verb in ("pack", "verify", "load", "jobs watch", "bench attach", "completion"):
            self.assertRegex(pages["glyd.1"], rf"(?m)^   {verb}$")
        self.assertIn("--drain-timeout TIME", pages["glydd.8"])


unittest.main()
