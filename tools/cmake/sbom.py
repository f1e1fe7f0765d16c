#!/usr/bin/env python3
"""sbom.py VERSION BUILD OUT: the parts of glydd's programs as SPDX 2.3: the packages of THIRD_PARTY.md, which must
have every library that they name, and those that these libraries load in turn."""
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
PROGRAMS = ["glydd", "glyd", "glyd-worker"]
UNKNOWN = {"downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
           "copyrightText": "NOASSERTION"}


def text(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def packages_of(paths):
    """Of libraries, which dpkg may know below /usr or without it."""
    both = [q for p in paths for q in (p, p.removeprefix("/usr") if p.startswith("/usr/") else "/usr" + p)]
    found = subprocess.run(["dpkg", "-S", *both], capture_output=True, text=True).stdout
    return {line.split(":")[0] for line in found.splitlines() if "diversion" not in line}


def entry(identifier, name, version, licence, **more):
    return {"SPDXID": f"SPDXRef-{identifier}", "name": name, "versionInfo": version, **UNKNOWN,
            "licenseDeclared": licence, **more}


def main(version, build, out):
    listed = dict(re.findall(r"^\| `(\S+)` \| (.*?) \|", (TREE / "THIRD_PARTY.md").read_text(), re.M))
    programs = [Path(build) / "bin" / p for p in PROGRAMS]
    named = set(re.findall(r"NEEDED.*\[(\S+)\]", text("readelf", "-d", *map(str, programs))))
    loaded = dict(re.findall(r"(\S+) => (\S+) ", "".join(text("ldd", str(p)) for p in programs)))
    linked = packages_of([path for name, path in loaded.items() if name in named])
    if missing := sorted(linked - set(listed)):
        sys.exit(f"sbom: THIRD_PARTY.md lacks {', '.join(missing)}")

    parts = [entry("glydd", "glydd", version, "Apache-2.0")]
    relations = [("DOCUMENT", "DESCRIBES", "glydd")]
    for package in sorted(packages_of(loaded.values()) | set(listed)):
        installed = text("dpkg-query", "-W", "-f", "${Version}\n", package).split()[0]
        identifier = re.sub(r"[^A-Za-z0-9.-]", "-", package)
        purl = f"pkg:deb/debian/{package}@{installed}".replace("+", "%2B")
        parts.append(entry(identifier, package, installed, listed.get(package, "NOASSERTION"), externalRefs=[
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]))
        relations.append(("glydd", "DEPENDS_ON", identifier))
    for program in programs:
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        parts.append(entry(f"program-{program.name}", program.name, version, "Apache-2.0", checksums=[
            {"algorithm": "SHA256", "checksumValue": digest}], primaryPackagePurpose="APPLICATION"))
        relations.append((f"program-{program.name}", "PACKAGE_OF", "glydd"))

    name = f"glydd-{version}"
    seed = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    made = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    Path(out).write_text(json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
        "documentNamespace": f"urn:glydd:sbom:{name}:{seed[:32]}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", made), "creators": ["Tool: glydd-sbom"]},
        "packages": parts,
        "relationships": [{"spdxElementId": f"SPDXRef-{a}", "relationshipType": kind,
                           "relatedSpdxElement": f"SPDXRef-{b}"} for a, kind, b in relations]}, indent=1) + "\n")


main(*sys.argv[1:])
