#!/usr/bin/env python3
"""deploy/systemd: units that systemd-analyze finds clean and hardened, a configuration that glydd takes."""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["GLYD_SOURCE_DIR"]) / "deploy/systemd"
GLYDD = pathlib.Path(os.environ["GLYD_BIN_DIR"]) / "glydd"
GLYD = GLYDD.with_name("glyd")
MOST_EXPOSED = 2.5


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def activated(folder):
    """glydd on sockets that another opened, in a directory where it may write nothing."""
    if os.geteuid() != 0:
        return
    folder.chmod(0o755)
    (folder / "run").mkdir()
    # Where this tree is, another user may not come.
    glydd = shutil.copy(GLYDD, folder)
    shutil.copy(GLYDD.with_name("glyd-worker"), folder)
    state = folder / "state"
    state.mkdir()
    os.chown(state, 65534, 65534)
    paths = [folder / "run/glydd.sock", folder / "run/broker.sock"]
    listeners = []
    for path in paths:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(1024)
        listeners.append(listener)
    log = folder / "log"
    child = os.fork()
    if child == 0:
        moved = [fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 10) for s in listeners]
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
        for to, fd in enumerate(moved, start=3):
            os.dup2(fd, to)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.execve(glydd, ["glydd", "--socket", str(paths[0]), "--state", str(state), "--allow-uid", "0"], {
            "LISTEN_FDS": "2", "LISTEN_FDNAMES": "grpc:broker", "LISTEN_PID": str(os.getpid())})
    for listener in listeners:
        listener.close()
    try:
        code, said = run(str(GLYD), "--server", f"unix:{paths[0]}", "health")
        assert code == 0, said + log.read_text()
    finally:
        os.kill(child, signal.SIGTERM)
        status = os.waitpid(child, 0)[1]
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, log.read_text()
    assert all(path.exists() for path in paths), "glydd removed a socket that is not its own"


def main():
    with tempfile.TemporaryDirectory() as folder:
        activated(pathlib.Path(folder))
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
