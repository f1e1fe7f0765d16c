#!/usr/bin/env python3
"""driver_answers_test.py CC LIBRARY DRIVER: what calls with good arguments, and with bad ones, answer for each way in which
a driver can be of no use. DRIVER is the double (tests/fakecuda)."""
import ctypes
import os
import subprocess
import sys
import tempfile

# What is wrong with the driver: the result, and the double's environment. "old" is a driver without functions.
EXPECTED = {"old": (35, {}), "no_device": (100, {"FAKECUDA_DEVICES": "0"}), "broken": (999, {"FAKECUDA_FAIL": "cuInit:1=999"}),
            "no_context": (201, {})}


def answers(path):
    """The results of every call that a driver is needed for, of products that are refused by their K and route, and of
    some with an argument that is wrong."""
    lib = ctypes.CDLL(path)
    i64, pointer, size = ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t
    block = (ctypes.c_uint8 * 4096)()
    at = pointer(ctypes.addressof(block) + 255 & ~255)
    odd = pointer(at.value + 2)
    words = (ctypes.c_uint32 * 4)()
    good, refused, bad = [lib.glyd_gpu_gpu(ctypes.byref(i64())), lib.glyd_gpu_hold(i64(0), None)], [], []

    def product(name, *route, k=64, x=at, m=65, room=1 << 40):
        return getattr(lib, f"glyd_gpu_{name}")(at, at, at, words, i64(64), i64(k), x, i64(m), None, at,
                                                *map(i64, route), at, size(room), at, None)

    for layout in ("mma", "mma12"):
        good += [getattr(lib, f"glyd_gpu_{layout}_unpack")(at, at, at, words, i64(64), i64(0), i64(64), at, i64(0), None),
                 product(f"{layout}_gemm", m=64), product(f"{layout}_gemm_big", 0),
                 *(product(f"{layout}_linear", route) for route in (-1, 0, 4, 5)),
                 product(f"{layout}_linear", 1, m=64, x=odd),
                 product(f"{layout}_linear", -1, k=80)]
        refused += [product(f"{layout}_linear", route, k=80) for route in (0, 4, 5)]
        bad += [product(f"{layout}_gemm", m=65), product(f"{layout}_gemm_big", 0, k=80),
                product(f"{layout}_gemm_big", 0, x=odd), product(f"{layout}_linear", 4, x=odd),
                product(f"{layout}_linear", 0, x=odd, k=80), product(f"{layout}_linear", 1, m=64, room=0),
                product(f"{layout}_linear", 5, m=128, k=4096, room=0), product(f"{layout}_linear", 1, m=65)]
    good += [product("mma12_gemm_mid"), product("mma12_gemm_wg"), product("mma12_linear", 2), product("mma12_linear", 3)]
    bad += [product("mma12_linear", 2, m=17, x=odd), product("mma12_linear", 3, m=17, x=odd)]
    return good, refused, bad


if len(sys.argv) == 2:
    print(*answers(sys.argv[1]), sep="\n")
    sys.exit(0)

cc, library, driver = sys.argv[1:]
failed = 0
with tempfile.TemporaryDirectory() as work:
    subprocess.run([cc, "-shared", "-x", "c", "/dev/null", "-o", f"{work}/libcuda.so.1"], check=True)
    for kind, (code, env) in EXPECTED.items():
        folder = work if kind == "old" else os.path.dirname(driver)
        child = subprocess.run([sys.executable, __file__, library], capture_output=True, text=True, check=False,
                               env={**os.environ, **env, "LD_LIBRARY_PATH": folder})
        lines = child.stdout.splitlines()
        for line, should in zip(lines, (code, 801 if kind == "no_context" else code, 1)):
            if set(line.strip("[]").split(", ")) != {str(should)}:
                failed += 1
                print(f"{kind}: {line}, all should be {should}")
        if child.returncode != 0 or len(lines) != 3:
            failed += 1
            print(f"{kind}: ended with {child.returncode}: {child.stdout}{child.stderr}")
sys.exit(1 if failed else 0)
