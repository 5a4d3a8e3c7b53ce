# SPDX-License-Identifier: Apache-2.0
"""GGUF files of tiny Llamas, as llama.cpp's converter writes them: float32 weights, and a vocabulary of single bytes."""

import struct

from tiny_models import byte_vocabulary

ALIGNMENT = 32
LAYER_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
               "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
               "post_attention_layernorm": "ffn_norm"}
MODEL_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def text_bytes(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value_bytes(value):
    """The number of its type, and its bytes."""
    if isinstance(value, bool):
        return BOOL, struct.pack("<B", value)
    if isinstance(value, int):
        return UINT32, struct.pack("<I", value)
    if isinstance(value, float):
        return FLOAT32, struct.pack("<f", value)
    if isinstance(value, str):
        return STRING, text_bytes(value)
    kind = value_bytes(value[0])[0] if value else STRING
    return ARRAY, struct.pack("<IQ", kind, len(value)) + b"".join(value_bytes(item)[1] for item in value)


def file_name(name):
    """model.layers.0.mlp.up_proj.weight -> blk.0.ffn_up.weight"""
    module, member = name.rsplit(".", 1)
    if module in MODEL_NAMES:
        return f"{MODEL_NAMES[module]}.{member}"
    _, _, layer, module = module.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[module]}.{member}"


def interleaved(rows, heads):
    """The rows of queries and keys that rotate together become neighbours."""
    half = len(rows) // heads // 2
    return [rows[head * 2 * half + part * half + i] for head in range(heads) for i in range(half) for part in range(2)]


def numbers_of(name, shape, numbers, config):
    heads = config["num_attention_heads"] if ".q_proj." in name else config["num_key_value_heads"] if ".k_proj." in name else 0
    if not heads:
        return numbers
    rows = [numbers[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]
    return [number for row in interleaved(rows, heads) for number in row]


def write_gguf(path, config, tensors, end, chat_template):
    """`tensors` are those of a Llama, {name: (shape, numbers)}; `end` is the token behind those of all bytes."""
    vocabulary = sorted((byte, letter) for letter, byte in byte_vocabulary().items())
    entries = {
        "general.architecture": "llama", "llama.context_length": config["max_position_embeddings"], "llama.embedding_length": config["hidden_size"],
        "llama.block_count": config["num_hidden_layers"], "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"], "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "llama.rope.freq_base": config["rope_theta"],
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": [letter for _, letter in vocabulary] + [end],
        "tokenizer.ggml.token_type": [1] * 256 + [3], "tokenizer.ggml.merges": [], "tokenizer.ggml.eos_token_id": 256,
        "tokenizer.chat_template": chat_template}
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(entries))
    for key, value in entries.items():
        kind, content = value_bytes(value)
        header += text_bytes(key) + struct.pack("<I", kind) + content
    data = b""
    for name, (shape, numbers) in tensors.items():
        header += text_bytes(file_name(name)) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        header += struct.pack("<IQ", 0, len(data))
        data += struct.pack(f"<{len(numbers)}f", *numbers_of(name, shape, numbers, config))
        data += b"\0" * (-len(data) % ALIGNMENT)
    path.write_bytes(header + b"\0" * (-len(header) % ALIGNMENT) + data)
    return path
