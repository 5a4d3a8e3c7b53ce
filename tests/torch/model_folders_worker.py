# SPDX-License-Identifier: Apache-2.0
"""Folders of models go from transformers to libaccel and back: what save_pretrained() writes is loaded, saved again under the same names,
and read by from_pretrained().

usage: model_folders_worker.py LIBACCEL

Runs in a Python that has torch, safetensors and transformers. Any failure ends it with an exception.
"""

import ctypes
import os
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open

SIZES = dict(vocab_size=13, hidden_size=32, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
EXPERTS = dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=12)
MODELS = (("MixtralForCausalLM", dict(num_local_experts=3)), ("Qwen2MoeForCausalLM", dict(EXPERTS, shared_expert_intermediate_size=6, mlp_only_layers=[0])),
          ("Qwen3MoeForCausalLM", dict(EXPERTS, head_dim=4)), ("GPTNeoXForCausalLM", dict(num_key_value_heads=4)), ("PhiForCausalLM", {}),
          ("StableLmForCausalLM", dict(partial_rotary_factor=0.5)), ("Qwen3ForCausalLM", dict(head_dim=4)), ("Phi3ForCausalLM", {}), ("Olmo2ForCausalLM", {}),
          ("LlamaForCausalLM", dict(tie_word_embeddings=True)))


def names_in(folder):
    with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
        return set(file.keys())


def main(path):
    library = ctypes.CDLL(path)
    library.accel_last_error.restype = ctypes.c_char_p

    def call(name, *arguments):
        if getattr(library, name)(*arguments) < 0:
            raise RuntimeError(f"{name}: {library.accel_last_error().decode()}")

    state = ctypes.c_void_p()
    call("accel_state_create", None, ctypes.byref(state))
    for name, settings in MODELS:
        kind = getattr(transformers, name)
        torch.manual_seed(3)
        model = kind(kind.config_class(**{**SIZES, **settings})).eval()
        with tempfile.TemporaryDirectory() as root:
            first, second = os.path.join(root, "first"), os.path.join(root, "second")
            model.save_pretrained(first)
            module = ctypes.c_void_p()
            call("accel_module_from_config", os.path.join(first, "config.json").encode(), ctypes.byref(module))
            call("accel_load_checkpoint_in_model", module, first.encode(), None, None, None)
            call("accel_save_model", state, module, second.encode(), None)
            library.accel_module_release(module)
            assert names_in(first) == names_in(second), (name, names_in(first) ^ names_in(second))
            shutil.copy(os.path.join(first, "config.json"), second)
            again, report = kind.from_pretrained(second, output_loading_info=True)
            assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), (name, report)
            found, expected = again.state_dict(), model.state_dict()
            assert found.keys() == expected.keys(), name
            for entry, tensor in expected.items():
                assert torch.equal(found[entry], tensor), (name, entry)
    library.accel_state_release(state)
    print(f"{len(MODELS)} models of transformers {transformers.__version__} are as they were")


main(sys.argv[1])
