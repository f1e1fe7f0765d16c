#!/usr/bin/env python3
"""Small bf16 checkpoints of made-up weights, one a family and one a trap, for byte-for-byte tests of the packer.

    checkpoints.py OUTDIR          writes them, a directory each (standard library alone, some seconds)
    checkpoints.py --list          prints their names

The weights are those of docs/format.md, "Known digests", the same bytes on every machine. checkpoints.tsv has what
packing NAME in OUTDIR must write, as glyd 0.25.0 does: checkpoint, layout (and --no-merge), file, sha256.
"""
import array, hashlib, json, os, struct, sys

M64 = (1 << 64) - 1


def weights(n, wild, seed):
    """n bf16 patterns (docs/format.md, "Known digests")."""
    x, out = (seed * 0x9E3779B97F4A7C15) & M64 | 1, array.array("H", bytes(2 * n))
    limit = round(wild * 1000000)
    for i in range(n):
        x ^= (x << 13) & M64
        x ^= x >> 7
        x ^= (x << 17) & M64
        if (x >> 8) % 1000000 < limit:
            out[i] = (x & 1) << 15 | (x >> 32) & 0x7FFF
        else:
            out[i] = (x & 1) << 15 | (115 + (x >> 40) % 12 + (x >> 48) % 3) << 7 | (x >> 20) & 0x7F
    return out.tobytes()


def seed_of(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") | 1


def llama_like(c, qk_norm=False, qkv_bias=False, o_bias=False, mlp_bias=False):
    """Tensor shapes of a decoder with grouped-query attention and a gated MLP."""
    h, d, f = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    t = {"model.embed_tokens.weight": (c["vocab_size"], h)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        t[p + "input_layernorm.weight"] = (h,)
        for n, o in (("q", q), ("k", kv), ("v", kv)):
            t[f"{p}self_attn.{n}_proj.weight"] = (o, h)
            if qkv_bias:
                t[f"{p}self_attn.{n}_proj.bias"] = (o,)
        t[p + "self_attn.o_proj.weight"] = (h, q)
        if o_bias:
            t[p + "self_attn.o_proj.bias"] = (h,)
        if qk_norm:
            t[p + "self_attn.q_norm.weight"] = t[p + "self_attn.k_norm.weight"] = (d,)
        t[p + "post_attention_layernorm.weight"] = (h,)
        if "num_local_experts" in c:
            E = c["num_local_experts"]
            t[p + "block_sparse_moe.router.layer.weight"] = (E, h)
            t[p + "block_sparse_moe.input_linear.weight"] = (E, 2 * f, h)
            t[p + "block_sparse_moe.output_linear.weight"] = (E, h, f)
        else:
            for n, o, k in (("gate", f, h), ("up", f, h), ("down", h, f)):
                t[f"{p}mlp.{n}_proj.weight"] = (o, k)
                if mlp_bias:
                    t[f"{p}mlp.{n}_proj.bias"] = (o,)
    t["model.norm.weight"] = (h,)
    if not c["tie_word_embeddings"]:
        t["lm_head.weight"] = (c["vocab_size"], h)
    return t


def config(arch, model_type, hidden, inter, heads, kv, head_dim, vocab, tied, layers=2, **more):
    return dict(architectures=[arch], model_type=model_type, hidden_size=hidden, intermediate_size=inter, num_attention_heads=heads,
                num_key_value_heads=kv, head_dim=head_dim, vocab_size=vocab, tie_word_embeddings=tied, num_hidden_layers=layers,
                max_position_embeddings=512, rms_norm_eps=1e-6, hidden_act="silu", torch_dtype="bfloat16", initializer_range=0.02,
                bos_token_id=1, eos_token_id=2, **more)


# name: (config, tensor options, wild share, shards, what it is for)
SPECS = {
    "qwen3-tied": (config("Qwen3ForCausalLM", "qwen3", 128, 256, 4, 2, 32, 320, True), dict(qk_norm=True), 0.0005, 1, "tied head is not saved; embedding first"),
    "qwen3-untied": (config("Qwen3ForCausalLM", "qwen3", 64, 192, 4, 2, 32, 256, False), dict(qk_norm=True), 0.0, 1, "embedding narrower than 128; packed lm_head"),
    "qwen3-shards": (config("Qwen3ForCausalLM", "qwen3", 128, 320, 4, 4, 32, 256, False, 3), dict(qk_norm=True), 0.01, 3, "source in three shards"),
    "llama-ragged": (config("LlamaForCausalLM", "llama", 128, 200, 4, 1, 32, 300, False), {}, 0.002, 1, "k, v, gate, up, down, lm_head not packable: q packed alone"),
    "llama-biases": (config("LlamaForCausalLM", "llama", 128, 192, 4, 2, 32, 256, True, attention_bias=True, mlp_bias=True),
                     dict(qkv_bias=True, o_bias=True, mlp_bias=True), 0.001, 1, "biases follow their pack"),
    "qwen2": (config("Qwen2ForCausalLM", "qwen2", 128, 256, 4, 2, 32, 256, True), dict(qkv_bias=True), 0.0, 1, "biases on q, k, v alone"),
    "mistral": (config("MistralForCausalLM", "mistral", 128, 192, 4, 1, 64, 256, False, sliding_window=None), {}, 0.3, 1, "many exceptions"),
    "granite": (config("GraniteForCausalLM", "granite", 64, 128, 2, 2, 32, 128, True, embedding_multiplier=12.0, logits_scaling=8.0,
                       residual_multiplier=0.22, attention_multiplier=0.015625, attention_bias=False, mlp_bias=False), {}, 0.0005, 1, ""),
    "granite-moe": (config("GraniteMoeForCausalLM", "granitemoe", 64, 128, 2, 2, 32, 128, True, num_local_experts=4, num_experts_per_tok=2,
                           embedding_multiplier=12.0, logits_scaling=6.0, residual_multiplier=0.22, attention_multiplier=0.015625,
                           attention_bias=False), {}, 0.001, 1, "experts as one pack; glyd-v2 in mma"),
}


def safetensors(path, tensors):
    """tensors: {name: (shape, bytes)}, written in the order given."""
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for n, (shape, b) in tensors.items():
        head[n] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + len(b)]}
        at += len(b)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for _, b in tensors.values():
            f.write(b)


def write(out, name, spec):
    c, options, wild, shards, _ = spec
    d = os.path.join(out, name)
    os.makedirs(d, exist_ok=True)
    tensors = {}
    for n, shape in sorted(llama_like(c, **options).items()):
        count = 1
        for s in shape:
            count *= s
        tensors[n] = (shape, weights(count, wild, seed_of(name + "/" + n)))
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(c, f, indent=2, sort_keys=True)
    with open(os.path.join(d, "generation_config.json"), "w") as f:
        json.dump({"bos_token_id": 1, "eos_token_id": 2}, f)
    with open(os.path.join(d, "tokenizer_config.json"), "w") as f:
        json.dump({"model_max_length": 512}, f)
    names = list(tensors)
    if shards == 1:
        safetensors(os.path.join(d, "model.safetensors"), tensors)
        return
    files = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    where = {n: files[i % shards] for i, n in enumerate(names)}  # scattered: neighbours in different shards
    for file in files:
        safetensors(os.path.join(d, file), {n: tensors[n] for n in names if where[n] == file})
    with open(os.path.join(d, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": sum(len(b) for _, b in tensors.values())}, "weight_map": where}, f, indent=2)


def main(specs=SPECS):
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--list":
        for n, s in specs.items():
            print(f"{n:14} {s[4]}")
        return
    for n, s in specs.items():
        write(sys.argv[1], n, s)


if __name__ == "__main__":
    main()
