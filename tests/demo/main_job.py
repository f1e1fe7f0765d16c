#!/usr/bin/env python3
"""main_job.py PROGRAMS MODEL WORK [WHAT=SECONDS...]: the main job end to end, each step proved.

Packs MODEL in both layouts, verifies, unpacks and compares; starts glydd on a socket and a state
directory of its own, loads, shares the model between processes, multiplies on both sides, kills a
client and a worker, stops. PROGRAMS is a build's bin; saves are written below WORK and removed.
WHAT=SECONDS are steps done before, for the table. Exits 1 at the first proof that fails.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import json
from pathlib import Path

from support import (Failure, Glyd, Report, file_digest, holders_of, human, mapping, require,
                     tensor_digests, wait_for)

# What glyd 0.25.0 writes for SmolLM2, packed as "smollm2": (model.safetensors, glyd.json).
SMOLLM2 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
KNOWN = {
    "mma12": ("dd642c1be0201d02db206ce19a6cc57ed2ab342ee2bca0b93adb75aaa7d18d3d",
              "b9526b91c82c730899add848a80b642f408d0721868266a1c95b838cfe882e68"),
    "mma": ("829419500d02abfba7155853cfe01dc7a65fd9e9f067fab126211745cfd6f313",
            "bb2a20ab80c2b2c42d4d9e4e1d788977eb996be5da499fb3dcb7a7a2b18b0b55"),
}
NAME = "demo"


def weights_bytes(directory):
    return sum(f.stat().st_size for f in Path(directory).glob("*.safetensors"))


def pack_and_compare(glyd, report, model, work):
    """Step 2. Returns the size of the mma12 save."""
    report.head("2. pack, verify, unpack")
    source = weights_bytes(model)
    single = model / "model.safetensors"
    known = model.name == "smollm2" and single.is_file() and file_digest(single) == SMOLLM2
    for layout in ("mma12", "mma"):
        out = work / layout
        seconds = glyd.local("pack", model.name, out, "--layout", layout, cwd=model.parent)
        size = weights_bytes(out)
        note = f"{100 * size / source:.1f}% of bf16"
        if known:
            got = (file_digest(out / "model.safetensors"), file_digest(out / "glyd.json"))
            require(got == KNOWN[layout], f"{layout}: sha256 {got}, glyd 0.25.0 has {KNOWN[layout]}")
            note += ", the bytes of glyd 0.25.0"
            report.say("  both files have the sha256 that glyd 0.25.0's have")
        report.row(f"pack {layout}", seconds, source, note)
        seconds = glyd.local("verify", out)
        report.row(f"verify {layout}", seconds, source)
    back = work / "back"
    seconds = glyd.local("unpack", work / "mma", back)
    report.row("unpack mma", seconds, source)
    before, after = tensor_digests(model), tensor_digests(back)
    tied = json.loads((model / "config.json").read_text()).get("tie_word_embeddings")
    lost = [n for n, digest in before.items() if after.get(n) != digest
            and not (tied and n == "lm_head.weight" and n not in after)]
    require(not lost, f"unpack: not as they were: {', '.join(lost[:5])}")
    same = single.is_file() and file_digest(single) == file_digest(back / "model.safetensors")
    report.say(f"  {len(after)} tensors, each bit for bit"
               + (", and model.safetensors byte for byte" if same else ""))
    shutil.rmtree(back)


def load(glyd, report, work):
    """Step 3. Returns the model as `ps` tells it."""
    report.head("3. a daemon, and the model in its memory")
    report.row("start glydd", glyd.start_daemon({"demo": work}))
    seconds = glyd.tell("load", NAME, "demo/mma12", "--wait")
    model = the_model(glyd)
    require(model["state"] == "READY", f"after load --wait the model is {model['state']}")
    report.row("load", seconds, model["packed_bytes"])
    glyd.tell("ps")
    return model


def the_model(glyd):
    models, _ = glyd.ask("ps", quiet=True)
    return next(m for m in models["models"] if m["name"] == NAME)


def lease_pids(glyd):
    return sorted(h["pid"] for h in the_model(glyd)["holders"])


def share(glyd, report, model, save):
    """Step 4. Returns the two clients, still attached."""
    report.head("4. two processes, one copy")
    inode = model["memory_inode"]
    glyd.show(["attach", NAME, "--hold", "&"])
    glyd.show(["attach", NAME, "--hold", "&"])
    start = time.monotonic()
    clients = [glyd.hold(NAME), glyd.hold(NAME)]
    report.row("attach, twice", time.monotonic() - start)
    require(lease_pids(glyd) == sorted(c.pid for c in clients),
            f"leases of {lease_pids(glyd)}, clients are {[c.pid for c in clients]}")
    glyd.tell("ps")
    for client in clients:
        require(mapping(client.pid, inode)[0] >= model["packed_bytes"],
                f"client {client.pid} does not map inode {inode}")
    report.say(f"  two leases; both processes map inode {inode}")

    manifest = json.loads((save / "glyd.json").read_text())
    expected = {t["name"]: t["sha256"] for p in manifest["packs"].values() for t in p["tensors"]}
    expected.update(manifest["tensors"])
    glyd.show(["hash", NAME, "&"])
    glyd.show(["hash", NAME, "&"])
    start = time.monotonic()
    hashers = [subprocess.Popen(glyd.remote("-q", "hash", NAME), stdout=subprocess.PIPE, text=True)
               for _ in range(2)]
    glyd.clients += hashers
    shares = watch_shares(hashers, inode)
    for hasher in hashers:
        lines = [line.split(None, 1) for line in hasher.communicate()[0].splitlines()]
        require(hasher.returncode == 0, f"glyd hash: exit {hasher.returncode}")
        require({name: digest for digest, name in lines} == expected,
                "glyd hash: not the digests of glyd.json")
    report.row("hash, twice at once", time.monotonic() - start, 2 * model["bf16_bytes"])
    report.say(f"  2 x {len(expected)} tensors decoded from the mapping have the sha256 of glyd.json")
    if shares:
        resident, proportional = shares
        report.say(f"  at its fullest one of them had {human(resident)} of the copy resident, "
                   f"and was charged {human(proportional)} for it (Pss)")
    return clients


def watch_shares(processes, inode):
    """(resident, proportional) bytes at a moment when two processes had most of the copy mapped."""
    best = None
    while any(p.poll() is None for p in processes):
        seen = [mapping(p.pid, inode) for p in processes]
        least = min(seen, key=lambda s: s[1])
        if least[1] and (best is None or least[1] > best[0]):
            best = least[1:]
        time.sleep(0.02)
        # Their output is small enough for the pipe: nothing waits for a reader.
    return best


def multiply(glyd, report, save):
    """Step 5."""
    report.head("5. a product, in the daemon and in the client's process")
    packs = json.loads((save / "glyd.json").read_text())["packs"]
    pack = max(packs, key=lambda p: packs[p]["shape"][0] * packs[p]["shape"][1])
    arguments = ["linear", NAME, pack, "--m", "8", "--via", "both", "--check"]
    report.row("linear, both sides", glyd.tell(*arguments),
               note=f"{pack} {packs[pack]['shape']}, M = 8")
    answer, _ = glyd.ask(*arguments, quiet=True)
    require(answer["same_bits"] is True, "linear: the two sides have other bits")
    require(answer["relative_error"] < 6e-3, f"linear: relative error {answer['relative_error']}")


def survive(glyd, report, clients):
    """Step 6, its first half: a client and a worker die."""
    report.head("6. what is killed, and what is left")
    victim, other = clients
    victim.send_signal(signal.SIGKILL)
    seconds = wait_for(1, "the dead client's lease is gone", lambda: lease_pids(glyd) == [other.pid])
    victim.wait()
    report.say(f"kill -9 of client {victim.pid}: its lease was gone {1000 * seconds:.0f} ms later")
    report.row("lease of a killed client", seconds, note="gone; at most 1 s is promised")

    device = lambda: glyd.ask("info", quiet=True)[0]["devices"][0]
    worker = device()["worker_pid"]
    os.kill(worker, signal.SIGKILL)
    seconds = wait_for(10, "the worker is started again",
                       lambda: device()["worker_pid"] not in (0, worker))
    report.say(f"kill -9 of worker {worker}: {device()['worker_pid']} serves, "
               f"{1000 * seconds:.0f} ms later")
    report.row("worker started again", seconds)
    model = the_model(glyd)
    require(model["state"] == "READY", f"after the worker's death the model is {model['state']}")
    require(lease_pids(glyd) == [other.pid], "the other client lost its lease")
    report.row("verify --resident", glyd.tell("verify", NAME, "--resident"), model["packed_bytes"])


def stop(glyd, report, inode):
    """Step 6, its second half: SIGTERM, with a client still attached."""
    worker = glyd.ask("info", quiet=True)[0]["devices"][0]["worker_pid"]
    start = time.monotonic()
    glyd.daemon.send_signal(signal.SIGTERM)
    try:
        code = glyd.daemon.wait(timeout=15)
    except subprocess.TimeoutExpired:
        raise Failure("glydd does not stop at SIGTERM") from None
    seconds = time.monotonic() - start
    require(code == 0, f"glydd: exit {code} at SIGTERM\n{glyd.daemon_log()}")
    for path in (glyd.socket, glyd.socket.parent / "broker.sock"):
        require(not path.exists(), f"glydd left {path}")
    wait_for(2, "the worker is gone", lambda: not Path(f"/proc/{worker}").exists())
    for client in glyd.clients:
        if client.poll() is None:
            client.communicate(timeout=10)  # closes its input, at which it ends
    left = holders_of(inode)
    require(not left, f"memory {inode} is still held by {left}")
    report.say("SIGTERM: exit 0; no socket, no process and no memory of it is left")
    report.row("stop at SIGTERM", seconds, note="exit 0, nothing left")


def main(programs, model, work, *before):
    model, work = Path(model).resolve(), Path(work).resolve()
    report = Report()
    for spent in before:
        what, _, seconds = spent.rpartition("=")
        report.row(what, float(seconds))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=work, prefix="run-") as saves, \
            tempfile.TemporaryDirectory(prefix="glyd-") as run_dir:
        glyd = Glyd(Path(programs).resolve(), report, run_dir)
        saves = Path(saves)
        report.short = {saves: "SAVES", run_dir: "RUN"}
        try:
            pack_and_compare(glyd, report, model, saves)
            loaded = load(glyd, report, saves)
            clients = share(glyd, report, loaded, saves / "mma12")
            multiply(glyd, report, saves / "mma12")
            survive(glyd, report, clients)
            stop(glyd, report, loaded["memory_inode"])
        except Failure as failure:
            print(f"\nFAILED: {failure}", file=sys.stderr)
            return 1
        finally:
            glyd.stop()
    report.row("steps 2 to 6", time.monotonic() - start)
    report.table()
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
