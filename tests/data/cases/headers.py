#!/usr/bin/env python3
"""headers.py OUTDIR: small safetensors files, good and bad, one a case, named hNN_what.safetensors.

headers.tsv has the verdict that each must get. Needs the standard library alone.
"""
import sys, os, struct, json
out = sys.argv[1]
os.makedirs(out, exist_ok=True)
def raw(name, b):
    with open(os.path.join(out, name + '.safetensors'), 'wb') as f: f.write(b)
def st(name, hdr, data=b'', n=None):
    if not isinstance(hdr, (bytes, bytearray)): hdr = json.dumps(hdr, separators=(',', ':')).encode()
    raw(name, struct.pack('<Q', len(hdr) if n is None else n) + hdr + data)
def t(dtype, shape, s, e): return {"dtype": dtype, "shape": shape, "data_offsets": [s, e]}
B = b'\x80\x3f'                                  # bf16 1.0
ok = {"a": t("BF16", [2, 3], 0, 12)}
st('h00_ok', ok, B*6)
raw('h01_empty', b'')
raw('h03_html', b'<!DOCTYPE html><html>Entry not found</html>')
raw('h04_lfs', b'version https://git-lfs.github.com/spec/v1\noid sha256:' + b'a'*64 + b'\nsize 12\n')
st('h06_n_too_long', ok, B*6, n=1000)
st('h07_n_negative', ok, B*6, n=(1 << 64)-1)
st('h09_truncated_header', json.dumps(ok).encode()[:20])
st('h10_truncated_data', ok, B*5)
st('h12_dup_last_differs', b'{"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"a":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]}}', B*6)
st('h13_dup_identical', b'{"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}', B*6)
st('h15_dup_inner_key', b'{"a":{"dtype":"BF16","dtype":"F16","shape":[1],"data_offsets":[0,2]}}', B)
st('h16_dup_escaped_key', b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},"\\u0061":{"dtype":"BF16","shape":[1],"data_offsets":[2,4]}}', B*2)
st('h18_alias_same_range', {"a": t("BF16", [2], 0, 4), "b": t("BF16", [2], 0, 4)}, B*2)
st('h19_hole', {"a": t("BF16", [1], 0, 2), "b": t("BF16", [1], 4, 6)}, B*3)
st('h21_end_before_start', {"a": t("BF16", [1], 4, 2)}, B*2)
st('h22_size_mismatch', {"a": t("BF16", [2, 3], 0, 10)}, B*5)
st('h24_shape_overflow_zero', {"a": t("BF16", [1 << 63, 4, 0], 0, 0)})
st('h25_shape_neg', b'{"a":{"dtype":"BF16","shape":[-1],"data_offsets":[0,2]}}', B)
st('h27_shape_1e0', b'{"a":{"dtype":"BF16","shape":[1e0],"data_offsets":[0,2]}}', B)
st('h28_off_2p64', b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,18446744073709551616]}}', B)
st('h30_off_strings', b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":["0","2"]}}', B)
st('h31_off_empty', b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[]}}', B)
st('h33_zero_size_mid', {"z": t("BF16", [0], 2, 2), "a": t("BF16", [1], 0, 2), "b": t("BF16", [1], 2, 4)}, B*2)
st('h34_zero_size_only', {"scaled_fp8": t("F8_E4M3", [0], 0, 0)})
st('h36_no_tensors', {})
st('h37_metadata_only', {"__metadata__": {"format": "pt"}})
st('h39_tensor_named_metadata', {"__metadata__": t("BF16", [1], 0, 2)}, B)
st('h40_metadata_null', b'{"__metadata__":null,"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}', B)
st('h42_lower_dtype', {"a": t("bf16", [1], 0, 2)}, B)
st('h43_f4_odd', {"a": t("F4", [3], 0, 2)}, B)
st('h45_missing_inner_key', b'{"a":{"dtype":"BF16","data_offsets":[0,2]}}', B)
st('h46_bad_utf8_name', b'{"\xff\xfe":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}', B)
st('h48_nul_in_name', b'{"a\\u0000b":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}', B)
st('h49_empty_name', {"": t("BF16", [1], 0, 2)}, B)
st('h51_newline_ansi_name', {"a\n\x1b[31mERR": t("BF16", [1], 0, 2)}, B)
st('h52_long_name', {"n"*70000: t("BF16", [1], 0, 2)}, B)
h = json.dumps(ok).encode()
st('h54_pad_nul', h + b'\0'*7, B*6)
st('h55_pad_newline', h + b'\n\n', B*6)
st('h57_bom', b'\xef\xbb\xbf' + h, B*6)
st('h58_polyglot_nul', h + b'\0' + b'{"b":1}', B*6)
st('h60_array_top', b'[]')
st('h61_comment', b'/*x*/' + h, B*6)
st('h63_unaligned_data', b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}} ', B)   # data at an odd offset below
st('h64_odd_start', {"u": t("U8", [1], 0, 1), "a": t("BF16", [2], 1, 5)}, b'\x07' + B*2)
st('h66_100k_dims', {"a": t("BF16", [1]*100000, 0, 2)}, B)
st('h67_nan_payload', {"a": t("BF16", [1, 8], 0, 16)}, struct.pack('<8H', 0x7f81, 0xffc1, 0x7fff, 0x7f80, 0x8000, 0x0001, 0x807f, 0x7fc0))
st('h69_moe_3d', {"experts.w": t("BF16", [3, 4, 16], 0, 384)}, bytes(i & 255 for i in range(384)))
st('h70_mixed', {"w": t("BF16", [2, 16], 0, 64), "b": t("F32", [16], 64, 128), "h": t("F16", [4], 128, 136), "i": t("I64", [1], 136, 144)}, bytes(144))
st('h72_same_name_case', {"A": t("BF16", [1], 0, 2), "a": t("BF16", [1], 2, 4)}, B*2)
st('h73_nfc_nfd', {"\u00e9": t("BF16", [1], 0, 2), "e\u0301": t("BF16", [1], 2, 4)}, B*2)
st('h75_minus_zero', b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[-0,2]}}', B)
st('h76_nan_literal', b'{"a":{"dtype":"BF16","shape":[NaN],"data_offsets":[0,2]}}', B)
