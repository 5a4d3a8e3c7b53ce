# SPDX-License-Identifier: Apache-2.0
"""Folders of tiny models, as the hub has them: weights are drawn, vocabularies written here."""

import json
import math
import os
import random
import struct


def write_tensors(path, tensors):
    """tensors: {name: (shape, numbers)}"""
    header, weights = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, numbers) in tensors.items():
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(weights), len(weights) + len(packed)]}
        weights += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + weights)


def write_safetensors(path, shapes):
    """Draws the weights of names and shapes."""
    drawn = random.Random(7)
    write_tensors(path, {name: (shape, [drawn.gauss(0, 0.5) for _ in range(math.prod(shape))]) for name, shape in shapes.items()})


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file)


def write_llama(folder, vocabulary=64):
    """A model of 3 layers."""
    width, inner, layers = 16, 24, 3
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": inner, "vocab_size": vocabulary,
              "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2}
    shapes = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,), "lm_head.weight": (vocabulary, width)}
    for i in range(layers):
        shapes.update({f"model.layers.{i}.{name}.weight": shape for name, shape in (
            ("self_attn.q_proj", (width, width)), ("self_attn.k_proj", (width // 2, width)), ("self_attn.v_proj", (width // 2, width)),
            ("self_attn.o_proj", (width, width)), ("mlp.gate_proj", (inner, width)), ("mlp.up_proj", (inner, width)),
            ("mlp.down_proj", (width, inner)), ("input_layernorm", (width,)), ("post_attention_layernorm", (width,)))})
    write_safetensors(os.path.join(folder, "model.safetensors"), shapes)
    write_json(folder, "config.json", config)


def special_token(number, content):
    """A row of added_tokens."""
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def byte_vocabulary():
    """GPT-2's letter of each byte, and its number."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = sorted(set(range(256)) - set(shown))
    letters = {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}
    return {letters[byte]: byte for byte in range(256)}


def write_chat_model(folder):
    """A Llama with a vocabulary of single bytes, an end and a template of chats."""
    special = [special_token(256 + i, content) for i, content in enumerate(("<|end|>", "<|user|>", "<|assistant|>"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    write_json(folder, "tokenizer.json", {"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": level, "post_processor": None,
                                          "decoder": level, "model": {"type": "BPE", "vocab": byte_vocabulary(), "merges": []}})
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
        "chat_template": "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"})
    write_llama(folder, vocabulary=260)


def write_encoder(folder):
    """A BERT with a vocabulary of letters, as MiniLM is one."""
    width, inner, layers, positions = 16, 24, 2, 64
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
    special = [special_token(i, words[i]) for i in range(5)]
    ends = {word: {"id": word, "ids": [words.index(word)], "tokens": [word]} for word in ("[CLS]", "[SEP]")}
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    write_json(folder, "tokenizer.json", {
        "version": "1.0", "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": ends},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {word: i for i, word in enumerate(words)}}})
    write_json(folder, "tokenizer_config.json", {"tokenizer_class": "BertTokenizerFast", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]",
                                                 "unk_token": "[UNK]", "mask_token": "[MASK]", "model_max_length": positions})
    write_json(folder, "config.json", {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_size": width, "intermediate_size": inner, "vocab_size": len(words),
        "num_hidden_layers": layers, "num_attention_heads": 4, "max_position_embeddings": positions, "type_vocab_size": 2, "hidden_act": "gelu",
        "pad_token_id": 0})
    shapes = {"embeddings.word_embeddings.weight": (len(words), width), "embeddings.position_embeddings.weight": (positions, width),
              "embeddings.token_type_embeddings.weight": (2, width), "embeddings.LayerNorm.weight": (width,), "embeddings.LayerNorm.bias": (width,),
              "pooler.dense.weight": (width, width), "pooler.dense.bias": (width,)}
    for i in range(layers):
        for name, rows, columns in (("attention.self.query", width, width), ("attention.self.key", width, width), ("attention.self.value", width, width),
                                    ("attention.output.dense", width, width), ("intermediate.dense", inner, width), ("output.dense", width, inner)):
            shapes.update({f"encoder.layer.{i}.{name}.weight": (rows, columns), f"encoder.layer.{i}.{name}.bias": (rows,)})
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes.update({f"encoder.layer.{i}.{name}.weight": (width,), f"encoder.layer.{i}.{name}.bias": (width,)})
    write_safetensors(os.path.join(folder, "model.safetensors"), shapes)
