#!/usr/bin/env bash
# compile.sh NVCC OUT ARG...: compiles to a fatbin OUT; OUT.log has what ptxas says of each kernel. Fails where it says
# that a kernel's wgmma are serialised (C7510 to C7515): correct, and several times slower.
set -euo pipefail
nvcc=$1 out=$2
shift 2
"$nvcc" --resource-usage -fatbin -o "$out" "$@" >"$out.log" 2>&1 || { cat "$out.log" >&2; rm -f "$out"; exit 1; }
if grep -E 'C751[0-5]' "$out.log" >&2; then rm -f "$out"; exit 1; fi
