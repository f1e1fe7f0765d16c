#!/usr/bin/env python3
"""capi_test.py LIBRARY: what libglyd_gpu.so exports, and what each call answers where there is no GPU.

Exits 77 (skipped) for the answers that a driver would change, where there is one.
"""
import ctypes
import os
import subprocess
import sys
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_uint32

LAYOUT = ["gemm", "gemm_workspace", "gemm_big", "gemm_big_workspace", "unpack", "route", "linear", "linear_workspace",
          "moe", "moe_workspace", "moe_unpack"]
ABSENT = """lane_bits write_codes decode gemv fast_gemv fast_decode fast_gemm fast_gemm_workspace fast_bgemv
            fast_bgemv_workspace attn_decode attn_decode_workspace""".split()
NAMES = (["api_version", "cuda_version", "error_string", "gpu", "hold", "moe_route"]
         + [f"{layout}_{name}" for layout in ("mma", "mma12") for name in LAYOUT]
         + [f"mma12_gemm_{name}" for name in ("mid", "mid_workspace", "wg", "wg_workspace")] + ABSENT)

path = sys.argv[1]
lib = ctypes.CDLL(path)
failed = 0


def expect(what, got, should):
    global failed
    if got != should:
        failed += 1
        print(f"{what}: {got}, expected {should}")


exported = {line.split()[-1].split("@")[0] for line in
            subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True,
                           check=True).stdout.splitlines() if " T " in line or " W " in line or " B " in line}
expect("exported names", sorted(exported), sorted("glyd_gpu_" + n for n in NAMES))
expect("how many", len(NAMES), 44)
needed = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
for line in needed.splitlines():
    if "NEEDED" in line:
        name = line.split("[")[1].rstrip("]")
        expect(f"links {name}", name.split(".")[0] in ("libc", "libm", "libdl", "libpthread", "ld-linux-x86-64"), True)

expect("api version", lib.glyd_gpu_api_version(), 5)
for name in ABSENT:
    expect(name, getattr(lib, "glyd_gpu_" + name)(), 801)

# Routes: every row of the table of the 0.25.0 library that its environment is not needed for; the rest by a process
# with that environment.
rows = [line.rstrip("\n").split("\t") for line in
        open(os.path.join(os.environ["GLYD_SOURCE_DIR"], "tests/data/cases/routes.tsv"), encoding="ascii")][1:]
now = os.environ.get("GLYD_TEST_ROUTES", "-")
for environment, gpu, layout, k, runs in rows:
    if environment != now:
        continue
    query = getattr(lib, f"glyd_gpu_{layout}_route")
    query.argtypes = [c_int64] * 4 + [POINTER(c_int), POINTER(c_int64)]
    for run in runs.split():
        m, want = map(int, run.split(":"))
        route, last = c_int(-1), c_int64(-1)
        expect(f"{layout} {gpu} K {k} M {m}", (query(int(gpu), 4096, int(k), m, byref(route), byref(last)), route.value),
               (0, want))
if now != "-":
    sys.exit(1 if failed else 0)
for environment in sorted({row[0] for row in rows} - {"-"}):
    name, value = environment.split("=")
    child = subprocess.run([sys.executable, __file__, path],
                           env={**os.environ, name: value, "GLYD_TEST_ROUTES": environment}, check=False)
    expect(f"routes with {environment}", child.returncode, 0)

# Argument errors. A call's arguments, changed one at a time.
I, P, Z = c_int64, ctypes.c_void_p, c_size_t
block = (ctypes.c_uint8 * 4096)()
at = ctypes.addressof(block) + 255 & ~255
sym, old, high, tiers = ((c_uint32 * 4)(*w) for w in ([0x38383838, 0, 0, 0], [0x38383838, 1, 2, 3],
                                                      [0x79797979, 0, 0, 0], [0xFF020100, 0xFF050403, 0xFF080706, 0]))
BIG = 1 << 40


def product(layout, name, extra=()):
    f = getattr(lib, f"glyd_gpu_{layout}_{name}")
    f.argtypes = [P, P, P, P, I, I, P, I, P, P] + [I] * len(extra) + [P, Z, P, P]
    good = dict(data=at, side=at, base=at, codes=ctypes.addressof(tiers if layout == "mma" else sym), O=64, K=64, x=at,
                M=1, bias=None, y=at, **{f"extra{i}": v for i, v in enumerate(extra)}, ws=at, bytes=BIG, done=at,
                stream=None)
    return lambda **change: f(*{**good, **change}.values())


none = product("mma", "gemm")()
for layout in ("mma", "mma12"):
    for name, extra in (("gemm", ()), ("gemm_big", (0,)), ("linear", (-1,)), ("linear", (4,))) + (
            (("gemm_mid", ()), ("gemm_wg", ())) if layout == "mma12" else ()):
        call = product(layout, name, extra)
        what = f"{layout}_{name}{extra}"
        expect(what, call(), none)
        for change in (dict(M=-1), dict(O=32), dict(O=0), dict(O=-64), dict(K=0), dict(K=8), dict(K=-16), dict(data=None),
                       dict(side=None), dict(base=None), dict(codes=None), dict(x=None), dict(y=None), dict(done=None),
                       dict(data=at + 1), dict(O=1 << 62), dict(K=1 << 62), dict(M=1 << 62), dict(ws=at + 4)):
            expect(f"{what} {change}", call(**change), 1)
        if layout == "mma12":
            expect(f"{what} old words", call(codes=ctypes.addressof(old)), 1)
            expect(f"{what} hb 121", call(codes=ctypes.addressof(high)), 1)
        if name == "gemm":
            for change in (dict(M=65), dict(bytes=0), dict(ws=None)):
                expect(f"{what} {change}", call(**change), 1)
            expect(f"{what} K 16", call(K=16), none)
            expect(f"{what} M 0", call(M=0, x=None, y=None), none)
            expect(f"{what} odd x", call(x=at + 2), none)
        elif name != "linear":
            for change in (dict(K=80), dict(x=at + 2)):
                expect(f"{what} {change}", call(**change), 1)
    for bad in (-2, 6) + ((2, 3) if layout == "mma" else ()):
        expect(f"{layout} route {bad}", product(layout, "linear", (bad,))(), 1)
    expect(f"{layout} route 1, M 65", product(layout, "linear", (1,))(M=65), 1)

    unpack = getattr(lib, f"glyd_gpu_{layout}_unpack")
    unpack.argtypes = [P, P, P, P, I, I, I, P, I, P]
    codes = ctypes.addressof(tiers if layout == "mma" else sym)
    expect(f"{layout}_unpack", unpack(at, at, at, codes, 64, 0, 64, at, 0, None), none)
    for args in ((0, 0, 64), (8, 0, 64), (64, -1, 64), (64, 0, -1), (64, 1 << 62, 1 << 62)):
        expect(f"{layout}_unpack {args}", unpack(at, at, at, codes, *args, at, 0, None), 1)

    size = Z(0)
    for query, args in (("gemm", (4096, 4096, 64)), ("gemm_big", (4096, 4096, 200, 0)), ("linear", (4096, 4096, 33, -1))):
        f = getattr(lib, f"glyd_gpu_{layout}_{query}_workspace")
        f.argtypes = [I] * len(args) + [POINTER(Z)]
        expect(f"{layout}_{query}_workspace", f(*args, byref(size)), 0)
        expect(f"{layout}_{query}_workspace none", f(*args, None), 1)
        expect(f"{layout}_{query}_workspace O 1", f(1, *args[1:], byref(size)), 1)
        expect(f"{layout}_{query}_workspace M -1", f(*args[:2], -1, *args[3:], byref(size)), 1)

    query = getattr(lib, f"glyd_gpu_{layout}_route")
    query.argtypes = [I] * 4 + [P, P]
    route = c_int(0)
    for args in ((90, 0, 64, 1), (90, 64, 0, 1), (90, 64, 64, -1), (-1, 64, 64, 1)):
        expect(f"{layout}_route {args}", query(*args, ctypes.addressof(route), None), 1)
    expect(f"{layout}_route of an old GPU", query(75, 64, 64, 1, ctypes.addressof(route), None), 801)
    expect(f"{layout}_route without a place", query(90, 64, 64, 1, None, None), 1)

    moe = getattr(lib, f"glyd_gpu_{layout}_moe")
    moe.argtypes = [P] * 4 + [I] * 3 + [P] + [I] * 3 + [P, I, P, P, I, P, P, P, Z, P, P]
    good = dict(data=at, side=at, base=at, codes=codes, E=4, O=128, K=64, x=at, T=2, k=2, gather=1, plan=at, act=0,
                bias=None, weights=None, fp32=1, ids=None, y=at, ws=None, bytes=0, done=at, stream=None)
    expect(f"{layout}_moe", moe(*good.values()), none)
    for change in (dict(E=0), dict(E=2049), dict(O=32), dict(K=8), dict(x=None), dict(T=-1), dict(k=0), dict(gather=2),
                   dict(plan=None), dict(act=3), dict(act=1, O=64), dict(y=None), dict(done=None),
                   dict(weights=at, ids=None, ws=at, bytes=BIG), dict(weights=at, ids=at, ws=at, bytes=100),
                   dict(weights=at, ids=at, act=1, ws=at, bytes=BIG)):
        expect(f"{layout}_moe {change}", moe(*{**good, **change}.values()), 1)
    query = getattr(lib, f"glyd_gpu_{layout}_moe_workspace")
    query.argtypes = [I] * 7 + [POINTER(Z)]
    expect(f"{layout}_moe_workspace", (query(4, 128, 64, 2, 2, 0, 1, byref(size)), size.value), (0, 4 * 128 * 4))
    expect(f"{layout}_moe_workspace act weighted", query(4, 128, 64, 2, 2, 1, 1, byref(size)), 1)
    unpack = getattr(lib, f"glyd_gpu_{layout}_moe_unpack")
    unpack.argtypes = [P] * 4 + [I] * 4 + [P, P, P]
    expect(f"{layout}_moe_unpack", unpack(at, at, at, codes, 4, 64, 64, 2, at, at, None), none)
    expect(f"{layout}_moe_unpack no plan", unpack(at, at, at, codes, 4, 64, 64, 2, None, at, None), 1)

lib.glyd_gpu_moe_route.argtypes = [P, I, I, P, P]
expect("moe_route", lib.glyd_gpu_moe_route(at, 4, 4, at, None), none)
for args in ((None, 4, 4, at), (at, -1, 4, at), (at, 4, 0, at), (at, 4, 2049, at), (at, 4, 4, None)):
    expect(f"moe_route {args}", lib.glyd_gpu_moe_route(*args, None), 1)
lib.glyd_gpu_gpu.argtypes = [P]
expect("gpu without a place", lib.glyd_gpu_gpu(None), 1)
lib.glyd_gpu_hold.argtypes = [I, P]
expect("hold -1", lib.glyd_gpu_hold(-1, None), 1)
lib.glyd_gpu_error_string.restype = ctypes.c_char_p
expect("error string", lib.glyd_gpu_error_string(801), b"cudaErrorNotSupported")
if failed:
    sys.exit(1)
try:
    ctypes.CDLL("libcuda.so.1")
    print("a driver is here: what is answered without one was not tried")
    sys.exit(77)
except OSError:
    expect("without a driver", none, 35)
sys.exit(1 if failed else 0)
