"""Generates tokens with a Llama from a folder with its config.json and safetensors, also when it is larger than the accelerator or the
memory:

    python big_model.py FOLDER --tokens 1,15043,29892 --new-tokens 20 --max-memory '{"0": "8GiB", "cpu": "16GiB"}'
    python big_model.py FOLDER --device-map '{"model.layers": "disk", "": "cpu"}'
"""

import argparse
import json
import pathlib
import re
import time

import accel
from accel import Accelerator, init_empty_weights, load_checkpoint_and_dispatch, nn


class Generator:
    """Gives the most probable token after some, and keeps the keys and values of all that the model has seen."""

    def __init__(self, model):
        self.model, self.past = model, []

    def __call__(self, tokens):
        logits, self.past = self.model(accel.tensor([tokens]), self.past)
        return logits.select(1, -1).argmax().item()


def peak_mebibytes():
    """The most memory that the process has had, mapped files included."""
    return int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) // 1024


parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--tokens", type=lambda text: [int(number) for number in text.split(",")], default=[1])
parser.add_argument("--new-tokens", type=int, default=8)
parser.add_argument("--max-memory", type=json.loads, help="devices and bytes; default: what is free")
parser.add_argument("--device-map", type=json.loads, help="paths and devices; default: found by the memory")
given = parser.parse_args()

accelerator = Accelerator()
with init_empty_weights():
    model = nn.from_config(given.folder / "config.json")
model = load_checkpoint_and_dispatch(model.eval(), given.folder, given.device_map or "auto", given.max_memory, no_split_module_classes=["LlamaDecoderLayer"])
print("parameters:", model.num_parameters())
print("device map:", json.dumps(model.hf_device_map, separators=(",", ":")))

with accel.no_grad():
    generate = Generator(model)
    token = generate(given.tokens)
    begin = time.perf_counter()
    print("tokens:", token, end="")
    for _ in range(1, given.new_tokens):
        token = generate([token])
        print("", token, end="", flush=True)
print(f"\ntokens a second: {(given.new_tokens - 1) / (time.perf_counter() - begin):.1f}")
print("peak memory in MiB:", peak_mebibytes())
accelerator.end_training()
