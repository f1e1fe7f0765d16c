#!/usr/bin/env python3
"""kernels.py FATBIN KERNEL_INFO [--write]: compares what the kernels take of a GPU with tests/golden/kernels.tsv.

A row a kernel and architecture: registers, spilled bytes, shared memory a block, blocks and warps that a
multiprocessor has room for; for step kernels, pack bytes in flight there (H200 wants 25 to 36 KB), and
instructions a weight of the main loop by class, where cuobjdump is found (build/nvcc, PATH). --write makes the table
anew. Exits 77 where there is nothing to compare: no fatbin, or another ptxas than the table's.
"""
import functools
import heapq
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PTXAS = "V13.0.88"
# Of a multiprocessor: shared memory, threads, blocks.
ROOM = {"80": (164, 2048, 32), "86": (100, 1536, 16), "89": (100, 1536, 24), "90a": (228, 2048, 32),
        "100": (228, 2048, 32), "120": (100, 1536, 24)}
CLASSES = {"mma": r"HMMA|LDSM", "load": r"LDS|LDG|LDC|ULDC|LDCU",
           "control": r"BRA|BSSY|BSYNC|WARPSYNC|NOP|DEPBAR|CALL|YIELD|VOTE|SHFL|BAR|ISETP|PLOP3"}
# The issue of a step kernel: decode alone takes 1.1; a change past these is a fault, not a diff.
MOST = {"glyd_mma12_step1": 1.8}


def resources(log):
    kernel = arch = spills = None
    for line in log.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line):
            kernel, arch = m.groups()
        elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = int(m[1]) + int(m[2])
        elif m := re.search(r"Used (\d+) registers", line):
            yield kernel, arch, int(m[1]), spills


def occupancy(arch, registers, threads, shared):
    shared_kb, most_threads, most_blocks = ROOM[arch]
    warps = threads // 32
    per_warp = (registers + 7) // 8 * 8 * 32
    blocks = min(most_blocks, most_threads // threads, 65536 // per_warp // warps,
                 shared_kb * 1024 // (shared + 1024))
    return blocks, blocks * warps


@functools.cache
def code_of_all(cuobjdump, fatbin, arch):
    text = subprocess.run([cuobjdump, "-sass", "-arch", "sm_" + arch, fatbin], capture_output=True, text=True,
                          check=True).stdout
    functions = re.split(r"^\s+Function : (\w+)$", text, flags=re.M)[1:]
    return {name: [(int(m[1], 16), m[2]) for m in re.finditer(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", body, re.M)]
            for name, body in zip(functions[::2], functions[1::2])}


def successors(code, index, i):
    text = code[i][1]
    after = [i + 1] if i + 1 < len(code) else []
    if re.match(r"EXIT|RET", text):
        return []
    m = re.search(r"\bBRA(\.DIV)?\b.*?(0x[0-9a-f]+)", text)
    if not m or m[1]:  # .DIV: for a warp that has come apart, which ours have not
        return after
    to = index[int(m[2], 16)]
    if not text.startswith("@"):
        return [to]
    # Copies are always taken in the main loop.
    if to > i and any("LDGSTS" in code[j][1] for j in range(i, min(to, i + 8))):
        return after
    return [to] + after


def shortest_cycle(code, index, key):
    cost, before, queue = {key: 0}, {}, [(0, key)]
    while queue:
        c, i = heapq.heappop(queue)
        if c > cost[i]:
            continue
        for j in successors(code, index, i):
            if j == key:
                path = [key]
                while i != key:
                    path.append(i)
                    i = before[i]
                return [code[k][1] for k in path]
            if c + 1 < cost.get(j, 1 << 30):
                cost[j], before[j] = c + 1, i
                heapq.heappush(queue, (c + 1, j))
    return []


def main_loop(code):
    """The shortest way around the loop with the most mma: no exceptions to patch, no ends of runs."""
    index = {address: i for i, (address, _) in enumerate(code)}
    loops = [shortest_cycle(code, index, i) for i, (_, t) in enumerate(code) if "HMMA" in t]
    return max(loops, key=lambda p: (sum("HMMA" in t for t in p), -len(p)))


def counts(loop, tiles):
    weights = sum("HMMA" in t for t in loop) / 4 / tiles * 32
    operations = [re.sub(r"^@!?U?P\w+\s+", "", t).split()[0].split(".")[0] for t in loop]
    by_class = {name: sum(bool(re.fullmatch(pattern, o)) or (name == "load" and o == "LDGSTS") for o in operations)
                for name, pattern in CLASSES.items()}
    by_class["integer"] = len(loop) - sum(by_class.values())
    return len(loop) / weights, {name: by_class[name] / weights for name in ("integer", "load", "mma", "control")}


def cuobjdump():
    for found in [shutil.which("cuobjdump"), *Path("build/nvcc").glob("lib/python3*/site-packages/nvidia/cu13/bin/cuobjdump"),
                  os.environ.get("CUOBJDUMP")]:
        if found and os.access(found, os.X_OK):
            return str(found)
    return None


def main():
    fatbin, info = Path(sys.argv[1]), sys.argv[2]
    if not fatbin.exists():
        print("built without CUDA kernels")
        return 77
    os.chdir(HERE.parent.parent)
    nvcc = subprocess.run(["tools/nvcc"], capture_output=True, text=True, check=True).stdout.strip()
    if PTXAS not in subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout:
        print(f"the table is of ptxas {PTXAS}, {nvcc} is another")
        return 77
    kernels = {n: (int(t), int(s)) for n, t, s in
               (line.split("\t") for line in subprocess.run([info], capture_output=True, text=True,
                                                            check=True).stdout.splitlines())}
    dump, rows, failed = cuobjdump(), [], 0
    for kernel, arch, registers, spills in sorted(resources(Path(f"{fatbin}.log").read_text(encoding="utf-8"))):
        threads, shared = kernels[kernel]
        blocks, warps = occupancy(arch, registers, threads, shared)
        if spills:
            failed += 1
            print(f"{kernel} on sm_{arch} spills {spills} bytes")
        row = [kernel, arch, registers, spills, shared, blocks, warps]
        if m := re.fullmatch(r"glyd_(mma|mma12)_step(\d)", kernel):
            row.append(warps * 4 * (1536 if m[1] == "mma12" else 1280))  # steps ahead of a warp (StepConfig)
            if dump:
                each, classes = counts(main_loop(code_of_all(dump, str(fatbin), arch)[kernel]), int(m[2]))
                row += [f"{each:.3f}", " ".join(f"{n} {v:.2f}" for n, v in classes.items())]
                if each > MOST.get(kernel, 1 << 30):
                    failed += 1
                    print(f"{kernel} on sm_{arch}: {each:.3f} instructions a weight, at most {MOST[kernel]}")
            else:
                row += ["?", "?"]
        rows.append([str(v) for v in row] + ["-"] * (10 - len(row)))
    header = "kernel arch registers spilled_bytes shared_bytes blocks warps bytes_in_flight instructions_a_weight by_class"
    if "--write" in sys.argv:
        (HERE / "kernels.tsv").write_text("\n".join("\t".join(r) for r in [header.split(), *rows]) + "\n")
        return 1 if failed else 0
    golden = [line.split("\t") for line in (HERE / "kernels.tsv").read_text(encoding="utf-8").splitlines()][1:]
    for row in rows:
        want = next((g for g in golden if g[:2] == row[:2]), None)
        if want is None or any(a != b and a != "?" for a, b in zip(row, want)):
            failed += 1
            print(f"is      {' '.join(row)}\nexpected {' '.join(want or ['nothing'])}")
    if len(golden) != len(rows):
        failed += 1
        print(f"{len(rows)} rows, the table has {len(golden)}")
    if failed:
        print("a change that is meant: tests/golden/kernels.py ... --write")
    return 1 if failed else 0


sys.exit(main())
