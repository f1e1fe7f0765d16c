#!/usr/bin/env python3
"""deploy/kubernetes: every kustomization renders, is valid for each Kubernetes it is for, asks for no more rights than
it says, and gives glydd and glyd nothing that they do not take."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["GLYD_SOURCE_DIR"]) / "deploy/kubernetes"
BIN = pathlib.Path(os.environ["GLYD_BIN_DIR"])
VENV = pathlib.Path(os.environ["GLYD_WORK_DIR"]) / "kubernetes-validate"
OLDEST = {"overlays/dra": (1, 34)}  # resource.k8s.io/v1
# Of other projects: no schema of Kubernetes' own is there.
FOREIGN = {"Certificate", "Issuer", "PodMonitor"}
# hostPath, and one init container that is root: what the node's DaemonSet cannot do without.
NOT_RESTRICTED = {"node"}


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def enter_venv():
    """This script once more, under a Python that has kubernetes-validate and yaml."""
    python = VENV / "bin/python"
    if pathlib.Path(sys.prefix) == VENV:
        return
    if not (VENV / "whole").exists():
        shutil.rmtree(VENV, ignore_errors=True)
        done = subprocess.run(["/usr/bin/python3", "-m", "venv", str(VENV)], capture_output=True, text=True)
        if done.returncode != 0:
            skip("no python3-venv here")
        done = subprocess.run([str(VENV / "bin/pip"), "--quiet", "--disable-pip-version-check", "--retries", "1",
                               "--timeout", "20", "install", "kubernetes-validate==1.37.0"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            skip("PyPI gives no kubernetes-validate: " + done.stderr.strip()[-300:])
        (VENV / "whole").touch()
    os.execv(python, [str(python), __file__])


def kustomizer():
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    if shutil.which("kubectl"):
        said = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True).stdout
        version = re.search(r"Kustomize Version: v(\d+)", said)
        if version and int(version[1]) >= 5:
            return ["kubectl", "kustomize"]
    skip("neither kustomize nor a kubectl with kustomize 5 here")
