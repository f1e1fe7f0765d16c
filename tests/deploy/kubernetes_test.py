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
NOT_RESTRICTED = {"node": {
    "volume sockets: hostPath", "volume state: hostPath", "volume models: hostPath", "directories: runAsNonRoot",
    "directories: runAsUser", "directories: capability CHOWN", "directories: capability FOWNER"}}


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
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
               "secret"}
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


def check_versions(which, documents):
    from kubernetes_validate import utils  # noqa: PLC0415 (it is the virtual environment's)

    versions = [tuple(int(n) for n in v.split(".")[:2]) for v in utils.all_versions()]
    checked = [v for v in sorted(set(versions)) if v >= OLDEST.get(which, (1, 30))]
    assert len(checked) >= 4, checked
    for major, minor in checked:
        for d in documents:
            if d["kind"] in FOREIGN:
                continue
            try:
                utils.validate(d, f"{major}.{minor}", strict=True)
            except utils.ValidationError as e:
                raise AssertionError(f"{which}: {d['kind']} in {major}.{minor}: {list(e.path)}: {e.message}") from e
    return "{}.{} to {}.{}".format(*checked[0], *checked[-1])


def check_policies(which, documents):
    """Selectors select pods that are there, and ports have the names that containers give."""
    by_label = [(labels, spec) for _, labels, spec in pods(documents)]
    for d in documents:
        spec = d["spec"] if "spec" in d else {}
        if d["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
            ports = [p["port"] for rule in spec["ingress"] for p in rule["ports"]]
        elif d["kind"] == "PodMonitor":
            selector, ports = spec["selector"]["matchLabels"], [p["port"] for p in spec["podMetricsEndpoints"]]
        elif d["kind"] == "Service":
            selector, ports = spec["selector"], [p["targetPort"] for p in spec["ports"]]
        else:
            continue
        selected = [s for labels, s in by_label if selector.items() <= labels.items()]
        assert selected, f"{which}: {d['kind']} selects no pod"
        names = {p["name"] for s in selected for c in containers(s) for p in c.get("ports", [])}
        assert set(ports) <= names, f"{which}: {d['kind']}: {ports}, of {names}"


def check_roles(documents):
    """A role is one that the daemon knows, and only clients have one."""
    for d in documents:
        if d["kind"] != "Certificate" or d["spec"].get("isCA"):
            continue
        uris = d["spec"].get("uris", [])
        assert all(u in ("glyd:role:read", "glyd:role:job", "glyd:role:admin") for u in uris), uris
        assert bool(uris) == ("client auth" in d["spec"]["usages"]), d["metadata"]["name"]


def check_sidecar(which, documents):
    (_, _, spec), = pods(documents)
    glydd, = spec["initContainers"]
    assert glydd["restartPolicy"] == "Always" and glydd["command"] == ["glydd"]
    app, = spec["containers"]
    server = next(e["value"] for e in app["env"] if e["name"] == "GLYD_SERVER").removeprefix("unix:")
    assert "--socket=" + server in glydd["args"]
    shared = [m["name"] for m in app["volumeMounts"] if beneath(server, [m["mountPath"]])]
    assert shared and {"name": shared[0], "emptyDir": {"sizeLimit": "1Mi"}} in spec["volumes"]
    if which == "overlays/gpu":
        assert app["resources"]["limits"]["nvidia.com/gpu"] == "1"
    if which == "overlays/dra":
        claim, = spec["resourceClaims"]
        assert claim["resourceClaimTemplateName"] in [
            d["metadata"]["name"] for d in documents if d["kind"] == "ResourceClaimTemplate"]
        for c in (glydd, app):
            assert c["resources"]["claims"] == [{"name": claim["name"]}]
            assert "memory" in c["resources"]["limits"], "a patch has taken the limits away"


def check_pack_one(documents):
    """The Job's script with the real glyd: packs, is content with what is packed, knows the list's end."""
    data = next(d["data"] for d in documents if d["kind"] == "ConfigMap")
    job = next(d for d in documents if d["kind"] == "Job")
    assert job["spec"]["completions"] == len(data["models.txt"].splitlines())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "script").write_text(data["pack-one.sh"])
        (folder / "list").write_text("none a mma\nllama-biases b mma12\n")
        (folder / "out").mkdir()
        cases = SOURCE.parents[1] / "tests/data/cases/checkpoints.py"
        subprocess.run([sys.executable, cases, folder / "in"], check=True)

        def index(n):
            return subprocess.run(["sh", folder / "script"], capture_output=True, text=True, env={
                "PATH": f"{BIN}:/usr/bin:/bin", "LIST": str(folder / "list"), "IN": str(folder / "in"),
                "OUT": str(folder / "out"), "JOB_COMPLETION_INDEX": str(n)})

        assert index(0).returncode not in (0, 2), "there is no such checkpoint"
        first = index(1)
        assert first.returncode == 0, first.stderr
        save = folder / "out/b/glyd.json"
        inode = save.stat().st_ino
        assert index(1).returncode == 0 and save.stat().st_ino == inode, "packed again"
        assert index(2).returncode == 2, "the list has two lines"
        assert sorted(p.name for p in (folder / "out").iterdir()) == ["b"]


def main():
    enter_venv()
    import yaml  # noqa: PLC0415

    render = kustomizer()
    found = sorted(str(p.parent.relative_to(SOURCE)) for p in SOURCE.rglob("kustomization.yaml"))
    assert {"base", "node", "pack-job", "remote-pack"} <= set(found), found
    daemons = 0
    for which in found:
        done = subprocess.run([*render, str(SOURCE / which)], capture_output=True, text=True)
        assert done.returncode == 0, f"{which}: {done.stderr}"
        assert "deprecated" not in done.stderr, done.stderr
        documents = list(yaml.safe_load_all(done.stdout))
        versions = check_versions(which, documents)
        for name, _, spec in pods(documents):
            refused = not_restricted(spec)
            if which in NOT_RESTRICTED:
                assert refused == NOT_RESTRICTED[which], f"{which}: {name}: {refused}"
            else:
                assert not refused, f"{which}: {name}: {refused}"
            daemons += check_pod(f"{which}: {name}", spec, documents)
        check_policies(which, documents)
        check_roles(documents)
        if which == "base" or which.startswith("overlays/"):
            check_sidecar(which, documents)
        if which == "pack-job":
            check_pack_one(documents)
        if which == "pack-job-kueue":
            job = next(d for d in documents if d["kind"] == "Job")
            assert job["spec"]["suspend"] and "kueue.x-k8s.io/queue-name" in job["metadata"]["labels"]
        print(f"{which}: {len(documents)} objects, Kubernetes {versions}")
    assert daemons >= 6, daemons


main()
