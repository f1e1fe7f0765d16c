#!/usr/bin/env python3
"""deploy/grafana: its metrics and labels are those that a living glydd serves, its alerts are documented and fire in
promtool's tests."""
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])
BIN = Path(os.environ["GLYD_BIN_DIR"])
FOLDER = TREE / "deploy/grafana"
# What Prometheus itself adds to a series, or a rule's author to an alert.
ADDED = {"instance", "job"}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def checkpoint(folder):
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "other"}')
    header = json.dumps({"w.weight": {"dtype": "BF16", "shape": [64, 64], "data_offsets": [0, 8192]}}).encode()
    data = struct.pack("<H", 0x3F80) * 4096
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)


def scrape(folder):
    """/metrics of a daemon that has a model, a session and a job."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    models = folder / "models"
    models.mkdir()
    checkpoint(models / "in")
    run(BIN / "glyd", "-q", "pack", models / "in", models / "save", "--any", "--layout", "mma12")
    server = f"unix:{folder}/run/glydd.sock"
    daemon = subprocess.Popen([BIN / "glydd", "--socket", f"{folder}/run/glydd.sock", "--state", f"{folder}/state",
                               "--root", f"models={models}", "--metrics", f"127.0.0.1:{port}"],
                              stderr=subprocess.DEVNULL)
    try:
        glyd = (BIN / "glyd", "-q", "--server", server)
        until = time.monotonic() + 30
        while subprocess.run([*glyd, "health"], capture_output=True).returncode != 0:
            if daemon.poll() is not None or time.monotonic() > until:
                sys.exit("glydd does not serve")
            time.sleep(0.05)
        run(*glyd, "load", "m", "models/save", "--wait")
        run(*glyd, "hash", "m")
        run(*glyd, "verify", "models/save", "--job")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            return reply.read().decode()
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()


def series(text):
    """Metric name -> its labels."""
    found = {}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? ", text, re.M):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def check(where, expression, served):
    names = set(re.findall(r"\bglyd_\w+", expression))
    if not names and "up{" not in expression:
        sys.exit(f"{where}: no metric of glydd in {expression}")
    for name in names:
        if name not in served:
            sys.exit(f"{where}: glydd serves no {name}")
    allowed = ADDED.union(*(served[name] for name in names))
    used = {label for group in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", group)}
    used |= {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")}
    if used - allowed:
        sys.exit(f"{where}: no label {', '.join(sorted(used - allowed))} in {expression}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        served = series(scrape(Path(folder)))

    rules = (FOLDER / "glydd.rules.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)\n(?:\s+#.*\n)*\s+expr: (.*)\n", rules)
    if len(alerts) != rules.count("- alert:"):
        sys.exit("glydd.rules.yml: an alert whose expression is not the line after it")
    for name, expression in alerts:
        check(name, expression, served)

    dashboard = json.loads((FOLDER / "glydd.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        sys.exit("glydd.json: an id twice")
    shown = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            check(panel["title"], target["expr"], served)
            shown |= set(re.findall(r"\bglyd_\w+", target["expr"]))
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in served if name.startswith("glyd_")}
    unseen = families - {re.sub(r"_bucket$", "", name) for name in shown}
    if unseen:
        sys.exit(f"glydd.json shows no {', '.join(sorted(unseen))}")

    tests = (FOLDER / "glydd.rules.test.yml").read_text()
    documented = re.findall(r"^\| `(Glydd\w+)` \|", (TREE / "docs/operating.md").read_text(), re.M)
    names = [name for name, _ in alerts]
    if documented != names:
        sys.exit(f"docs/operating.md has the alerts {documented}, the rules have {names}")
    for name in names:
        if not re.search(rf"alertname: {name}\n\s+eval_time: \w+\n\s+exp_alerts:\n\s+- exp_labels", tests):
            sys.exit(f"no test in which {name} fires")

    if shutil.which("promtool") is None:
        print("skipped the rules: no promtool here (Debian: prometheus)")
        sys.exit(77)
    run("promtool", "check", "rules", FOLDER / "glydd.rules.yml")
    run("promtool", "test", "rules", FOLDER / "glydd.rules.test.yml")


main()
