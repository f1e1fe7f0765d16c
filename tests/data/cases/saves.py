#!/usr/bin/env python3
"""saves.py SAVES OUTDIR: damaged saves, each a copy of a good one with one thing changed.

SAVES holds qwen3-tied.mma12, qwen3-tied.mma and granite-moe.mma12, packed from checkpoints.py's. saves.tsv has the
verdict of a verify on each, and what its message names. Needs the standard library alone.
"""
import copy, json, os, shutil, struct, sys

CASES = []


def case(base, verdict, says=""):
    """verdict: ok or refuse; says: what the message must name."""
    def add(f):
        CASES.append((f.__name__, base, verdict, says, f))
        return f
    return add


class Save:
    """A save in memory: .json (glyd.json), .files {file: (header dict in order, {name: bytes})}, .index or None, .tail {file: bytes}."""

    def __init__(self, d):
        self.json = json.load(open(os.path.join(d, "glyd.json")))
        self.files, self.index, self.tail, self.drop, self.extra = {}, None, {}, [], {}
        b = open(os.path.join(d, "model.safetensors"), "rb").read()
        n = struct.unpack("<Q", b[:8])[0]
        h = json.loads(b[8:8 + n])
        self.files["model.safetensors"] = {k: [v["dtype"], v["shape"], bytearray(b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])] for k, v in h.items() if k != "__metadata__"}

    @property
    def t(self):
        return self.files["model.safetensors"]

    def split(self, n=3):
        """Into n shards with an index."""
        t, names = self.t, list(self.t)
        self.files = {f"model-{i + 1:05d}-of-{n:05d}.safetensors": {k: t[k] for k in names[i::n]} for i in range(n)}
        self.index = {"metadata": {"total_size": sum(len(v[2]) for v in t.values())}, "weight_map": {k: f for f, ks in self.files.items() for k in ks}}
        return self

    def shard(self, i):
        return list(self.files)[i]

    def write(self, d):
        os.makedirs(d)
        for f, ts in self.files.items():
            if f in self.drop:
                continue
            h, at = {"__metadata__": {"format": "pt"}}, 0
            for k, (dt, sh, b) in ts.items():
                h[k] = {"dtype": dt, "shape": sh, "data_offsets": [at, at + len(b)]}
                at += len(b)
            raw = json.dumps(h, separators=(",", ":")).encode()
            raw += b" " * (-len(raw) % 8)
            with open(os.path.join(d, f), "wb") as o:
                o.write(struct.pack("<Q", len(raw)) + raw + b"".join(ts[k][2] for k in ts) + self.tail.get(f, b""))
        if self.json is not None:
            json.dump(self.json, open(os.path.join(d, "glyd.json"), "w"), indent=1)
        if self.index is not None:
            json.dump(self.index, open(os.path.join(d, "model.safetensors.index.json"), "w"), indent=2)
        for f, b in self.extra.items():
            open(os.path.join(d, f), "wb").write(b)


def pack(s, i=0):
    return list(s.json["packs"])[i]


def ints(b):
    return list(struct.unpack(f"<{len(b) // 4}i", b))


def put(s, name, values):
    b = struct.pack(f"<{len(values)}i", *values)
    s.t[name] = ["I32", [len(values)], bytearray(b)]


def exceptions(s):
    """A pack with exceptions: (name, exc, exc_base)."""
    for p in s.json["packs"]:
        base = ints(s.t[p + ".glyd_exc_base"][2])
        if base[-1] > 3:
            return p, ints(s.t[p + ".glyd_exc"][2]), base
    raise SystemExit("no pack with exceptions")


@case("qwen3-tied.mma12", "ok")
def good12(s): pass


@case("qwen3-tied.mma", "ok")
def good(s): pass


@case("granite-moe.mma12", "ok")
def good_experts(s): pass


@case("qwen3-tied.mma12", "ok")
def good_shards(s): s.split()


@case("qwen3-tied.mma12", "refuse", "colour")
def key_unknown(s): s.json["colour"] = 1


@case("qwen3-tied.mma12", "refuse", "version")
def version_word(s): s.json["glyd"] = "new"


@case("qwen3-tied.mma12", "refuse", "version")
def version_number(s): s.json["glyd"] = 0.25


@case("qwen3-tied.mma12", "refuse", "tensors")
def hashes_missing_v3(s): del s.json["tensors"]


@case("qwen3-tied.mma", "refuse", "tensors")
def hashes_missing_025(s): del s.json["tensors"]


@case("qwen3-tied.mma12", "refuse", "tensors")
def hashes_a_list(s): s.json["tensors"] = list(s.json["tensors"])


@case("qwen3-tied.mma12", "refuse", "model.norm.weight")
def hash_wrong(s): s.json["tensors"]["model.norm.weight"] = "0" * 64


@case("qwen3-tied.mma12", "refuse", "extra.weight")
def tensor_without_hash(s): s.t["extra.weight"] = ["BF16", [2], bytearray(4)]


@case("qwen3-tied.mma12", "refuse", "model.norm.weight")
def raw_bit_flipped(s): s.t["model.norm.weight"][2][5] ^= 4


@case("qwen3-tied.mma", "refuse", "")
def tier_digit_flipped(s): s.t[pack(s) + ".glyd_data"][2][3] ^= 3


@case("qwen3-tied.mma12", "refuse", "hb")
def hb_missing(s): del s.json["packs"][pack(s)]["hb"]


@case("qwen3-tied.mma12", "refuse", "hb")
def hb_fraction(s): s.json["packs"][pack(s)]["hb"] = 57.5


@case("qwen3-tied.mma12", "refuse", "")
def hb_one_more(s): s.json["packs"][pack(s)]["hb"] += 1


@case("qwen3-tied.mma", "refuse", "tiers")
def tiers_negative(s): s.json["packs"][pack(s)]["tiers"][0] -= 1 << 32


@case("qwen3-tied.mma", "refuse", "")
def tiers_swapped(s): t = s.json["packs"][pack(s)]["tiers"]; t[0], t[1] = t[1], t[0]


@case("qwen3-tied.mma12", "refuse", "glyd_data")
def buffer_short(s): t = s.t[pack(s) + ".glyd_data"]; t[2] = t[2][:-1536]; t[1] = [len(t[2])]


@case("qwen3-tied.mma12", "refuse", "glyd_exc_base")
def buffer_of_another_dtype(s): s.t[pack(s) + ".glyd_exc_base"][0] = "F32"


@case("qwen3-tied.mma12", "refuse", "exc_base")
def exceptions_past_the_end(s): p, e, b = exceptions(s); b[-1] = 1 << 30; put(s, p + ".glyd_exc_base", b)


@case("qwen3-tied.mma12", "refuse", "exc_base")
def exceptions_negative(s): p, e, b = exceptions(s); b[0] = -4; put(s, p + ".glyd_exc_base", b)


@case("qwen3-tied.mma12", "refuse", "exc")
def exceptions_not_padded(s): p, e, b = exceptions(s); put(s, p + ".glyd_exc", e[:b[-1]] + [0] * ((b[-1] % 4 == 0) * 1))


@case("qwen3-tied.mma", "refuse", "block_base")
def blocks_do_not_start_at_128(s): n = pack(s) + ".glyd_block_base"; b = ints(s.t[n][2]); b[0] = 0; put(s, n, b)


@case("qwen3-tied.mma", "refuse", "blocks")
def blocks_without_their_tail(s): t = s.t[pack(s) + ".glyd_blocks"]; t[2] = t[2][:-200]; t[1] = [len(t[2])]


@case("qwen3-tied.mma12", "refuse", "shape")
def shape_63_rows(s): s.json["packs"][pack(s)]["shape"][0] = 63


@case("qwen3-tied.mma12", "refuse", "")
def tensor_of_another_pack(s):
    a, b = s.json["packs"][pack(s, 0)], s.json["packs"][pack(s, 2)]; a["tensors"][0]["name"] = b["tensors"][0]["name"]


@case("qwen3-tied.mma12", "refuse", "")
def tensor_twice(s):
    p = pack(s, 1); s.json["packs"][p]["tensors"][1] = copy.deepcopy(s.json["packs"][p]["tensors"][0])


@case("qwen3-tied.mma12", "refuse", "")
def rows_do_not_add_up(s): s.json["packs"][pack(s, 1)]["tensors"][0]["shape"][0] += 64


@case("qwen3-tied.mma12", "refuse", "")
def packed_and_raw(s): n = s.json["packs"][pack(s)]["tensors"][0]["name"]; s.json["tensors"][n] = "0" * 64


@case("granite-moe.mma12", "refuse", "")
def experts_five(s):
    p = next(k for k, v in s.json["packs"].items() if "experts" in v); s.json["packs"][p]["experts"] = 5


@case("granite-moe.mma12", "refuse", "")
def experts_transposed(s):
    p = next(k for k, v in s.json["packs"].items() if "experts" in v); s.json["packs"][p]["transposed"] = True


@case("qwen3-tied.mma12", "refuse", "")
def shard_missing(s): s.split(); s.drop.append(s.shard(1))


@case("qwen3-tied.mma12", "refuse", "model.norm.weight")
def index_names_the_wrong_shard(s): s.split(); w = s.index["weight_map"]; w["model.norm.weight"] = next(f for f in s.files if f != w["model.norm.weight"])


@case("qwen3-tied.mma12", "refuse", "model.norm.weight")
def index_forgets_one(s): s.split(); del s.index["weight_map"]["model.norm.weight"]


@case("qwen3-tied.mma12", "refuse", "../")
def index_leaves_the_directory(s):
    s.split(); w = s.index["weight_map"]
    for k in list(w):
        if w[k] == s.shard(2): w[k] = "../" + w[k]


@case("qwen3-tied.mma12", "refuse", "glyd.json")
def no_manifest(s): s.json = None


@case("qwen3-tied.mma12", "refuse", "glyd.json")
def manifest_cut(s): b = json.dumps(s.json, indent=1).encode(); s.json = None; s.extra["glyd.json"] = b[:-100]


@case("qwen3-tied.mma12", "refuse", "source")
def source_a_number(s): s.json["source"] = 7


@case("qwen3-tied.mma12", "refuse", "packs")
def packs_a_list(s): s.json["packs"] = []


@case("qwen3-tied.mma12", "refuse", "")
def deep_json(s): s.json = None; s.extra["glyd.json"] = b"[" * 200000


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for name, base, _, _, change in CASES:
        s = Save(os.path.join(sys.argv[1], base))
        change(s)
        s.write(os.path.join(sys.argv[2], name))


if __name__ == "__main__":
    main()
