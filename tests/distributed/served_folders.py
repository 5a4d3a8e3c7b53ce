# SPDX-License-Identifier: Apache-2.0
"""Folders of tiny models that `accel serve` can run: config.json, safetensors, tokenizer.json and templates of chats."""

import json
import pathlib
import random

from gguf_files import write_gguf
from tiny_models import byte_vocabulary, special_token, write_tensors

END = "<|end|>"
CHAT_TEMPLATE = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}" \
                "{% if add_generation_prompt %}assistant: {% endif %}"
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "tie_word_embeddings": False}
BERT = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 40, "hidden_size": 16, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 24, "type_vocab_size": 2, "layer_norm_eps": 1e-12}


class Weights:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tensors = {}

    def add(self, name, *shape, spread=0.3, ones=False):
        count = 1
        for size in shape:
            count *= size
        self.tensors[name] = (list(shape), [1.0 if ones else self.random.gauss(0, spread) for _ in range(count)])

    def norm(self, name, size):
        self.add(name + ".weight", size, ones=True)

    def linear(self, name, outputs, inputs):
        self.add(name + ".weight", outputs, inputs)
        self.add(name + ".bias", outputs)


def byte_tokenizer():
    """One token for each byte, and one that ends a text."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special_token(256, END)], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": byte_vocabulary(), "merges": []}}


def word_tokenizer():
    """Letters as pieces of words."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = names + [chr(ord("a") + i) for i in range(18)] + ["##" + chr(ord("a") + i) for i in range(18)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special_token(i, name) for i, name in enumerate(names)],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                          {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                                                  "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": {piece: number for number, piece in enumerate(vocabulary)}}}


def write_folder(folder, config, weights, tokenizer, tokenizer_config):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", weights.tensors)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder


def llama_weights(config):
    width, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    keys = width // heads * config["num_key_value_heads"]
    weights = Weights(3)
    weights.add("model.embed_tokens.weight", config["vocab_size"], width, spread=1)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, outputs, inputs in (("self_attn.q_proj", width, width), ("self_attn.k_proj", keys, width), ("self_attn.v_proj", keys, width),
                                      ("self_attn.o_proj", width, width), ("mlp.gate_proj", inner, width), ("mlp.up_proj", inner, width),
                                      ("mlp.down_proj", width, inner)):
            weights.add(prefix + name + ".weight", outputs, inputs)
        weights.norm(prefix + "input_layernorm", width)
        weights.norm(prefix + "post_attention_layernorm", width)
    weights.norm("model.norm", width)
    weights.add("lm_head.weight", config["vocab_size"], width)
    weights.tensors["lm_head.weight"][1][-width:] = [0.0] * width  # no text ends by itself
    return weights


def write_llama(folder, **changes):
    config = {**LLAMA, **changes}
    return write_folder(folder, config, llama_weights(config), byte_tokenizer(), {"eos_token": END, "chat_template": CHAT_TEMPLATE})


def write_gguf_llama(path):
    """The model of write_llama() in one file."""
    return write_gguf(pathlib.Path(path), LLAMA, llama_weights(LLAMA).tensors, END, CHAT_TEMPLATE)


def write_bert(folder):
    width, inner = BERT["hidden_size"], BERT["intermediate_size"]
    weights = Weights(4)
    for name, rows in (("word", BERT["vocab_size"]), ("position", BERT["max_position_embeddings"]), ("token_type", 2)):
        weights.add(f"embeddings.{name}_embeddings.weight", rows, width)
    prefix = "encoder.layer.0."
    for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        weights.linear(prefix + name, width, width)
    weights.linear(prefix + "intermediate.dense", inner, width)
    weights.linear(prefix + "output.dense", width, inner)
    weights.linear("pooler.dense", width, width)
    for name in ("embeddings.LayerNorm", prefix + "attention.output.LayerNorm", prefix + "output.LayerNorm"):
        weights.norm(name, width)
        weights.add(name + ".bias", width, spread=0.01)
    return write_folder(folder, BERT, weights, word_tokenizer(), {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"})
