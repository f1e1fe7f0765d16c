#!/usr/bin/env python3
"""tools/package: twice the same bytes, a list of parts that holds together, and a Debian package that a machine with
nothing on it installs, starts, upgrades, removes and purges, with nothing left."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])
OUT = TREE / "build/package"

TRY = r"""
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
apt-get update -qq || exit 77
set -ex
install_it="apt-get install -y --no-install-recommends --allow-downgrades"
$install_it /tmp/glydd.deb
as_glydd="setpriv --reuid glydd --regid glydd --clear-groups env HOME=/var/lib/glydd"
glyd version
mkdir -p /srv/models
install -d -o glydd -g glydd /run/glydd
$as_glydd glydd --config /etc/glydd/glydd.toml --socket /run/glydd/glydd.sock --state /var/lib/glydd &
daemon=$!
tries=0
until $as_glydd glyd health; do tries=$((tries + 1)); test $tries -lt 100; sleep 0.1; done
$as_glydd glyd info
kill $daemon
wait $daemon
echo '# of the operator' >>/etc/glydd/glydd.toml
$install_it --reinstall /tmp/glydd.deb
tail -n 1 /etc/glydd/glydd.toml | grep -qx '# of the operator'
test -d /var/lib/glydd
apt-get remove -y glydd
test ! -e /usr/bin/glydd && test ! -e /usr/libexec/glyd-worker
test -e /etc/glydd/glydd.toml && test -d /var/lib/glydd
apt-get purge -y glydd
rm /tmp/glydd.deb
left=$(find / -xdev -path /proc -prune -o -name '*glyd*' -print)
test -z "$left" || { echo "left behind: $left"; exit 1; }
"""


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode == 77:
        print("skipped:", done.stdout.strip().splitlines()[-1])
        sys.exit(77)
    assert done.returncode == 0, f"{command[0]}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


def check_parts(path):
    parts = json.loads(path.read_text())
    ids = {e["SPDXID"] for e in parts["packages"]} | {parts["SPDXID"]}
    ends = {r[end] for r in parts["relationships"] for end in ("spdxElementId", "relatedSpdxElement")}
    assert ids == ends, ids ^ ends
    assert {"glydd", "glyd-worker", "libgrpc++1.51", "libssl3"} <= {p["name"] for p in parts["packages"]}


def main():
    if not shutil.which("dpkg-shlibdeps") or not (TREE / ".git").exists():
        print("skipped: packages are made in a clone, with Debian's dpkg-dev")
        sys.exit(77)
    sums = []
    for _ in range(2):
        run(TREE / "tools/package")
        sums.append((OUT / "SHA256SUMS").read_text())
    assert sums[0] == sums[1] and len(sums[0].splitlines()) == 4, sums
    (spdx,) = OUT.glob("*.spdx.json")
    check_parts(spdx)

    base = run(TREE / "tools/base").strip()
    with tempfile.TemporaryDirectory() as root:
        run("tar", "-C", root, "-xpf", base)
        (deb,) = OUT.glob("glydd_*.deb")
        shutil.copy(deb, Path(root) / "tmp/glydd.deb")
        shutil.copy("/etc/resolv.conf", Path(root) / "etc/resolv.conf")
        run("unshare", "--mount", "--pid", "--fork", "sh", "-c",
            'mount -t proc proc "$0/proc" && exec chroot "$0" sh -c "$1"', root, TRY)


main()
