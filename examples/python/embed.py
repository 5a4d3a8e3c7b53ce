"""Makes a small GPT-2 and keeps it in a folder as configuration and weights, then loads it from there, as any other GPT-2, and embeds
texts with it. The processes share the texts:

    accel launch --num-processes 2 -- python embed.py FOLDER
"""

import math
import pathlib
import sys

import accel
from accel import Accelerator, nn

CONFIG = '{"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}'
TEXTS = ["the cat sat on the mat", "a cat sat on a mat", "gradients are averaged"]


def make_model(accelerator, folder):
    accel.set_seed(7)
    accelerator.save_model(nn.from_config(CONFIG), folder)
    (folder / "config.json").write_text(CONFIG)


def load_model(folder):
    model = nn.from_config(folder / "config.json")
    model.load_state_dict(accel.load(folder / "model.safetensors"))
    return model.eval()


class Embedder:
    """Gives the mean of the last hidden states, which a hook keeps."""

    def __init__(self, model):
        self.model = model
        self.norm = model.get_submodule("transformer.ln_f")
        self.norm.register_forward_hook(self.keep)

    def keep(self, module, output):
        self.hidden = output

    def __call__(self, text):
        self.model(accel.tensor([list(text.encode())]))
        return self.hidden.mean([1])


def product(a, b):
    return sum(x * y for x, y in zip(a, b))


def similarity(a, b):
    return product(a, b) / (math.sqrt(product(a, a)) * math.sqrt(product(b, b)))


if len(sys.argv) != 2:
    sys.exit(f"usage: {sys.argv[0]} FOLDER")
folder = pathlib.Path(sys.argv[1])
accelerator = Accelerator(cpu=True)
if accelerator.is_main_process:
    make_model(accelerator, folder)
accelerator.wait_for_everyone()

model = load_model(folder)
accelerator.print(f"parameters: {model.num_parameters()}")
embed = Embedder(model)
with accel.no_grad(), accelerator.split_between_processes(TEXTS) as mine:
    rows = accel.utils.gather_uneven(accel.utils.concatenate([embed(text) for text in mine])).tolist()
for number, row in enumerate(rows, 1):
    accelerator.print(f"text {number}:", *(f"{value:.4f}" for value in row[:4]))
for number, row in enumerate(rows[1:], 2):
    accelerator.print(f"similarity 1 {number}: {similarity(rows[0], row):.4f}")
accelerator.end_training()
