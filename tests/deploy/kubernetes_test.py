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


def pods(documents):
    """(name, labels, spec) of every pod template."""
    for d in documents:
        template = d.get("spec", {}).get("template", {})
        if "spec" in template:
            yield d["kind"] + "/" + d["metadata"]["name"], template["metadata"].get("labels", {}), template["spec"]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def not_restricted(spec):
    """What of a pod the Restricted profile of the Pod Security Standards refuses."""
    found = set()
    own = spec.get("securityContext", {})
    found |= {key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)}
    if own.get("sysctls"):
        found.add("sysctls")
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for v in spec.get("volumes", []):
        found |= {f"volume {v['name']}: {kind}" for kind in set(v) - {"name"} - allowed}
    for c in containers(spec):
        s = c.get("securityContext", {})
        where = c["name"] + ": "
        if s.get("runAsNonRoot", own.get("runAsNonRoot")) is not True:
            found.add(where + "runAsNonRoot")
        if s.get("runAsUser", own.get("runAsUser")) == 0:
            found.add(where + "runAsUser")
        if s.get("seccompProfile", own.get("seccompProfile", {})).get("type") not in ("RuntimeDefault", "Localhost"):
            found.add(where + "seccompProfile")
        if s.get("allowPrivilegeEscalation") is not False:
            found.add(where + "allowPrivilegeEscalation")
        if s.get("privileged"):
            found.add(where + "privileged")
        if s.get("procMount", "Default") != "Default":
            found.add(where + "procMount")
        if "ALL" not in s.get("capabilities", {}).get("drop", []):
            found.add(where + "capabilities.drop")
        added = set(s.get("capabilities", {}).get("add", [])) - {"NET_BIND_SERVICE"}
        found |= {where + "capability " + a for a in added}
        found |= {where + "hostPort" for p in c.get("ports", []) if p.get("hostPort")}
        # Not of the profile, but of this project.
        if s.get("readOnlyRootFilesystem") is not True:
            found.add(where + "readOnlyRootFilesystem")
        if "memory" not in c.get("resources", {}).get("limits", {}):
            found.add(where + "no limit of memory")
    return found


def check_mounts(name, spec):
    volumes = {v["name"] for v in spec.get("volumes", [])}
    for c in containers(spec):
        for m in c.get("volumeMounts", []):
            assert m["name"] in volumes, f"{name}: {c['name']} mounts {m['name']}, which is no volume"
    used = {m["name"] for c in containers(spec) for m in c.get("volumeMounts", [])}
    assert used == volumes, f"{name}: volumes that no one mounts: {volumes - used}"


def writable(c):
    return [m["mountPath"] for m in c["volumeMounts"] if not m.get("readOnly")]


def beneath(path, places):
    return any(path == p or path.startswith(p + "/") for p in places)


def check_glydd(name, c, spec, documents, folder):
    """glydd takes the container's arguments and variables, with the mounts elsewhere."""
    mounts = {m["mountPath"]: folder / m["name"] for m in c["volumeMounts"]}
    flags = {}
    for arg in c["args"]:
        key, _, value = arg.removeprefix("--").partition("=")
        flags.setdefault(key, []).append(value)
    for path in flags["state"] + [os.path.dirname(p) for p in flags["socket"]]:
        assert beneath(path, writable(c)), f"{name}: {path} cannot be written"
    for root in flags["root"]:
        path, _, rw = root.partition("=")[2].partition(":")
        assert beneath(path, mounts), f"{name}: root {path} is no mount"
        assert (rw == "rw") == beneath(path, writable(c)), f"{name}: {root} and its mount differ on writing"
    secrets = {v["name"]: v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    certified = {d["spec"]["secretName"] for d in documents if d["kind"] == "Certificate"}
    for key, file in (("tls-cert", "tls.crt"), ("tls-key", "tls.key"), ("tls-client-ca", "ca.crt")):
        for path in flags.get(key, []):
            place, base = os.path.split(path)
            volume = next(m["name"] for m in c["volumeMounts"] if m["mountPath"] == place)
            assert secrets[volume] in certified and base == file, f"{name}: --{key}={path}"
    for port in ("listen", "metrics"):
        for address in flags.get(port, []):
            number = int(address.rpartition(":")[2])
            assert number in [p["containerPort"] for p in c["ports"]], f"{name}: --{port} is no port of the container"
    for place in mounts.values():
        place.mkdir(exist_ok=True)
    for preload in flags.get("preload", []):
        path = preload.partition("=")[2].partition("/")[2].partition(",")[0]
        (mounts["/models"] / path).mkdir(exist_ok=True)
    args = []
    for arg in c["args"]:
        for place in sorted(mounts, key=len, reverse=True):
            arg = re.sub("=" + re.escape(place) + r"(?=/|:|$)", "=" + str(mounts[place]), arg)
        args.append(arg)
    env = {e["name"]: e["value"] for e in c.get("env", [])}
    done = subprocess.run([str(BIN / "glydd"), *args, "--check-config"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stderr}"
    unknown = subprocess.run([str(BIN / "glydd"), *args, "--no-such-flag=1", "--check-config"], env=env,
                             capture_output=True, text=True)
    assert unknown.returncode != 0, "--check-config takes any flag"


def check_glyd(name, command):
    """A command line that glyd takes: with no daemon there it says so (3), not that its usage is wrong (2)."""
    done = subprocess.run([str(BIN / "glyd"), *command[1:]], env={"GLYD_SERVER": "unix:/nowhere/glydd.sock"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, f"{name}: {command}: {done.returncode}: {done.stderr}"


def check_pod(name, spec, documents):
    check_mounts(name, spec)
    glydd = 0
    for c in containers(spec):
        command = c["command"] + c.get("args", [])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert (probe in c) == (command[0] == "glydd"), f"{name}: {c['name']}: {probe}"
            if probe in c:
                check_glyd(name, c[probe]["exec"]["command"])
        if command[0] == "glyd":
            check_glyd(name, command)
        if command[0] == "glydd":
            glydd += 1
            with tempfile.TemporaryDirectory() as folder:
                check_glydd(name, c, spec, documents, pathlib.Path(folder))
            drain = next((int(a[len("--drain-timeout="):-1]) for a in command if a.startswith("--drain-timeout=")), 5)
            assert spec["terminationGracePeriodSeconds"] > drain, f"{name}: killed before the drain has ended"
    return glydd
