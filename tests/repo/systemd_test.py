#!/usr/bin/env python3
"""deploy/systemd: units that systemd-analyze finds clean and hardened, a configuration that glydd takes."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["GLYD_SOURCE_DIR"]) / "deploy/systemd"
GLYDD = pathlib.Path(os.environ["GLYD_BIN_DIR"]) / "glydd"
MOST_EXPOSED = 2.5


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config = folder / "glydd.toml"
        (folder / "models").mkdir()
        config.write_text(
            (SOURCE / "glydd.toml").read_text()
            .replace("/srv/models", str(folder / "models"))
            # A group that every machine has.
            .replace("@glydd", "@root"))
        code, said = run(str(GLYDD), "--config", str(config), "--check-config")
        assert code == 0, said

        if shutil.which("systemd-analyze") is None:
            print("skipped: no systemd-analyze here")
            sys.exit(77)
        units = []
        for unit in SOURCE.iterdir():
            if unit.suffix not in (".service", ".socket"):
                continue
            text = unit.read_text().replace("/usr/bin/glydd", str(GLYDD))
            (folder / unit.name).write_text(text)
            units.append(str(folder / unit.name))
        code, said = run("systemd-analyze", "verify", "--man=no", *units)
        ours = [line for line in said.splitlines() if "glydd" in line]
        assert code == 0 and not ours, said
        code, said = run("systemd-analyze", "security", "--offline=true", "--no-pager",
                         str(folder / "glydd.service"))
        level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
        assert level, said
        assert float(level[1]) < MOST_EXPOSED, said
        print("exposure level", level[1])


main()
