#!/usr/bin/env python3
"""Two containers of a pod, as the kernel has them: glydd and its client in network, mount, PID and IPC namespaces of
their own, with nothing in common but the directory of the sockets, which the client cannot write. The client maps the
model by the descriptors it is sent, and has the bytes that the checkpoint has."""

import hashlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(os.environ["GLYD_SOURCE_DIR"])
BIN = pathlib.Path(os.environ["GLYD_BIN_DIR"])
# Debian's kernel asks for root here, or for user namespaces that anyone may make.
UNSHARE = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
if os.geteuid() != 0:
    UNSHARE[1:1] = ["--map-current-user", "--keep-caps"]


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def contained(hidden, script, **options):
    """`script` in namespaces of its own, where the directories `hidden` are empty."""
    lines = [f"mount -t tmpfs -o ro none {path}" for path in hidden]
    return subprocess.Popen([*UNSHARE, "sh", "-ec", "\n".join(lines + [script])],
                            stdin=subprocess.DEVNULL, text=True, **options)


def run(hidden, script):
    child = contained(hidden, script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = child.communicate(timeout=50)
    except subprocess.TimeoutExpired:
        child.kill()
        raise
    return child.returncode, out, err


def tensors(path):
    """sha256 of each tensor of a checkpoint, read here by hand."""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: hashlib.sha256(data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]).hexdigest()
            for name, t in header.items()}


def namespaces(pid):
    return {kind: os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt", "pid", "ipc")}


def init_of(unshared):
    """The first process inside, which is a child of unshare's."""
    for _ in range(500):
        children = pathlib.Path(f"/proc/{unshared}/task/{unshared}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise AssertionError("unshare starts nothing")


def main():
    probe = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    if probe.returncode != 0:
        skip("no namespaces may be made here: " + probe.stderr.strip())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("sockets", "private", "private/state", "in"):
            (folder / name).mkdir()
        subprocess.run([sys.executable, SOURCE / "tests/data/cases/checkpoints.py", folder / "in"], check=True)
        models = folder / "private/models"
        models.mkdir()
        subprocess.run([BIN / "glyd", "-q", "pack", folder / "in/llama-biases", models / "m", "--layout", "mma12"],
                       check=True)
        with open(folder / "log", "w") as log:
            daemon = contained([folder / "in"], f"""exec {BIN}/glydd --socket {folder}/sockets/glydd.sock \\
                --state {folder}/private/state --root models={models} --preload m=models/m \\
                --device host --budget 64MiB --max-connections 64""",
                               stdout=log, stderr=log)
        try:
            attach(folder, daemon)
        except AssertionError:
            print((folder / "log").read_text(), file=sys.stderr)
            raise
        finally:
            if daemon.poll() is None:
                daemon.kill()  # and with it what is inside
            daemon.wait()


def attach(folder, daemon):
    glyd = f"{BIN}/glyd --server unix:{folder}/sockets/glydd.sock -q -o json"
    # What the client sees: the sockets, not to be written, and nothing of the models or of the daemon.
    hidden = [folder / "private", folder / "in"]
    box = f"mount --bind -o ro {folder}/sockets {folder}/sockets\n"
    wait = box + f"for i in $(seq 400); do {glyd} health m >/dev/null 2>&1 && exit 0; sleep 0.05; done; exit 1"
    assert run(hidden, wait)[0] == 0, "the model's health service never serves"

    holder = contained(hidden, box + f"exec {glyd} attach m --seconds 45", stdout=subprocess.PIPE)
    try:
        inside, other = init_of(daemon.pid), init_of(holder.pid)
        ours, theirs = namespaces(inside), namespaces(other)
        assert all(ours[kind] != theirs[kind] for kind in ours), (ours, theirs)

        code, out, err = run(hidden, box + f"""ls {folder}/private {folder}/in >&2
            touch {folder}/sockets/x 2>/dev/null && echo 'the sockets can be written' >&2
            rm -f {folder}/sockets/glydd.sock 2>/dev/null && echo 'the socket can be removed' >&2
            ls /proc | grep -c '^[0-9]' >&2
            {glyd} hash m""")
        assert code == 0, err
        assert "can be" not in err and "models" not in err and "llama" not in err, err
        got = {t["name"]: t["sha256"] for t in json.loads(out)["tensors"]}
        want = {}
        for path in (folder / "in/llama-biases").glob("*.safetensors"):
            want.update(tensors(path))
        assert want and got == want, {k for k in got.keys() | want if got.get(k) != want.get(k)}

        pack = "model.layers.0.mlp.gate_proj"
        for via in ("process", "daemon"):
            code, _, err = run(hidden, box + f"{glyd} linear m {pack} --via {via} --check")
            assert code == 0, (via, err)

        # Processes whose ids the daemon does not see share a quarter of the connections: others still get in.
        code, out, err = run(hidden, box + f"""{sys.executable} -c '
import socket
held = []
for _ in range(40):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect("{folder}/sockets/glydd.sock")
    try:
        if s.recv(1):
            held.append(s)
    except OSError:
        pass
print(len(held))'""")
        assert code == 0 and 0 < int(out) <= 16, (out, err)

        # A holder that is killed in its own PID namespace, where the daemon has no number for it, keeps no lease.
        model, = json.loads(run(hidden, box + glyd + " ps")[1])["models"]
        assert model["leases"] == 1, model
        assert [h["pid"] for h in model["holders"]] == [0], model
        os.kill(other, signal.SIGKILL)
        holder.wait()
        for _ in range(200):
            model, = json.loads(run(hidden, box + glyd + " ps")[1])["models"]
            if model["leases"] == 0:
                break
        assert model["leases"] == 0, model
        os.kill(inside, signal.SIGTERM)
        assert daemon.wait(30) == 0, "SIGTERM as the first process of a container"
    finally:
        holder.kill()
        holder.wait()
    print("the client's namespaces are", theirs, "the daemon's", ours)


main()
