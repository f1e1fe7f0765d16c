"""What the main job's steps stand on: commands, the daemon, the table of times, a look into /proc."""
import hashlib
import json
import os
import signal
import struct
import subprocess
import time
from pathlib import Path


class Failure(Exception):
    """A proof that did not hold, or a command that failed."""


def require(holds, text):
    if not holds:
        raise Failure(text)


def human(size):
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95 or unit == "GB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000


class Report:
    """Steps, told as they happen, and the table of them at the end."""

    def __init__(self):
        self.rows = []
        self.short = {}  # long paths, and what is told in their place

    def head(self, text):
        print(f"\n{text}", flush=True)

    def say(self, text):
        for path, name in self.short.items():
            text = text.replace(str(path), name)
        print(f"   {text}", flush=True)

    def row(self, what, seconds, size=0, note=""):
        """One line of the table: `size` bytes, where there are any, give a rate."""
        rate = f"{human(size / seconds)}/s" if size and seconds > 0 else ""
        self.rows.append((what, f"{seconds:.2f} s", human(size) if size else "", rate, note))

    def table(self):
        head = ("step", "time", "size", "rate", "")
        widths = [max(len(r[i]) for r in [head, *self.rows]) for i in range(4)]
        print()
        for what, seconds, size, rate, note in [head, *self.rows]:
            print(f"{what:<{widths[0]}}  {seconds:>{widths[1]}}  {size:>{widths[2]}}  "
                  f"{rate:>{widths[3]}}  {note}".rstrip())


class Glyd:
    """The programs of a build, and a daemon on a socket and a state directory of its own."""

    def __init__(self, programs, report, run_dir):
        self.programs, self.report, self.run_dir = Path(programs), report, Path(run_dir)
        self.socket = self.run_dir / "glydd.sock"
        self.daemon = None
        self.clients = []

    def command(self, *arguments):
        return [str(self.programs / "glyd"), *map(str, arguments)]

    def remote(self, *arguments):
        return self.command("--server", f"unix:{self.socket}", *arguments)

    def show(self, arguments):
        """Tells a command as a user would type it."""
        self.report.say("$ glyd " + " ".join(str(a) for a in arguments))

    def run(self, argv, cwd=None):
        """stdout of a command that must succeed, and its seconds."""
        start = time.monotonic()
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True)
        seconds = time.monotonic() - start
        if done.returncode != 0:
            raise Failure(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr.strip()}")
        return done.stdout, seconds

    def local(self, *arguments, cwd=None):
        """A command on files whose text is for the reader; returns its seconds."""
        self.show(arguments)
        out, seconds = self.run(self.command("-q", *arguments), cwd)
        self.repeat(out)
        return seconds

    def repeat(self, text):
        for line in text.splitlines():
            self.report.say("  " + line)

    def ask(self, *arguments, quiet=False):
        """A command to the daemon, its answer as JSON, and its seconds."""
        if not quiet:
            self.show(arguments)
        out, seconds = self.run(self.remote("-q", "-o", "json", *arguments))
        return json.loads(out), seconds

    def tell(self, *arguments):
        """A command to the daemon whose text is for the reader; returns its seconds."""
        self.show(arguments)
        out, seconds = self.run(self.remote("-q", *arguments))
        self.repeat(out)
        return seconds

    def start_daemon(self, roots):
        self.log = open(self.run_dir / "glydd.log", "w+")
        argv = [str(self.programs / "glydd"), "--socket", str(self.socket),
                "--state", str(self.run_dir / "state")]
        for name, directory in roots.items():
            argv += ["--root", f"{name}={directory}"]
        self.report.say("$ glydd --socket RUN/glydd.sock --state RUN/state "
                        + " ".join(f"--root {n}={d}" for n, d in roots.items()))
        start = time.monotonic()
        self.daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log,
                                       stderr=self.log)
        wait_for(10, "glydd is ready", lambda: self.is_ready())
        return time.monotonic() - start

    def is_ready(self):
        require(self.daemon.poll() is None, f"glydd ended: {self.daemon_log()}")
        return subprocess.run(self.remote("-q", "health"), capture_output=True).returncode == 0

    def daemon_log(self):
        return (self.run_dir / "glydd.log").read_text()[-2000:]

    def hold(self, name):
        """A process that attaches and stays; returned once it has the model mapped."""
        client = subprocess.Popen(self.remote("attach", name, "--hold"), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.clients.append(client)
        line = client.stdout.readline()
        require(line, f"glyd attach: {client.stderr.read() if not line else ''}")
        return client

    def stop(self):
        """Ends whatever still runs, on the way out."""
        for process in [*self.clients, *([self.daemon] if self.daemon else [])]:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()


def wait_for(seconds, what, holds):
    """Seconds until `holds()`; a Failure where it takes longer than `seconds`."""
    start = time.monotonic()
    while not holds():
        require(time.monotonic() - start < seconds, f"not within {seconds} s: {what}")
        time.sleep(0.01)
    return time.monotonic() - start


def mapping(pid, inode):
    """(mapped, resident, proportional) bytes of a process's mappings of a memfd's inode."""
    sizes, inside = {"Size": 0, "Rss": 0, "Pss": 0}, False
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0, 0, 0
    for line in lines:
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            inside = len(words) > 5 and words[4] == str(inode) and words[5].startswith("/memfd:")
        elif inside and words[0][:-1] in sizes:
            sizes[words[0][:-1]] += int(words[1]) * 1024
    return sizes["Size"], sizes["Rss"], sizes["Pss"]


def holders_of(inode):
    """Processes that map a memfd's inode or have it open."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            open_inodes = [os.stat(f"/proc/{entry.name}/fd/{fd}").st_ino
                           for fd in os.listdir(entry / "fd")
                           if os.readlink(entry / "fd" / fd).startswith("/memfd:")]
        except OSError:
            open_inodes = []
        if inode in open_inodes or mapping(entry.name, inode)[0]:
            found.append(int(entry.name))
    return found


def file_digest(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def tensor_digests(directory):
    """name -> sha256 of each tensor of a checkpoint's safetensors files."""
    index = Path(directory) / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    out = {}
    for name in names:
        with open(Path(directory) / name, "rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(length))
            for tensor, entry in header.items():
                if tensor != "__metadata__":
                    begin, end = entry["data_offsets"]
                    f.seek(8 + length + begin)
                    out[tensor] = hashlib.sha256(f.read(end - begin)).hexdigest()
    return out
