"""Texts as vectors by a GPT-2, shared out among the processes: accel launch --num-processes 2 -- python embed.py [CONFIG.json]

The vector of a text is the mean of the logits over its bytes. Without a config the model is small and its weights are random.
"""

import sys

import accel
from accel import nn

SMALL = '{"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 64, "vocab_size": 256}'
TEXTS = ["a cat sat on the mat", "a cat sat on a mat", "0123456789", "collectives wait for all ranks"]

state = accel.PartialState(cpu=True)
accel.set_seed(0)
model = nn.from_config(sys.argv[1] if len(sys.argv) > 1 else SMALL).eval()
state.print(f"{model.num_parameters()} parameters")
with accel.inference_mode(), state.split_between_processes(TEXTS) as mine:
    vectors = [model(accel.tensor([list(text.encode())]))[0].mean(0).tolist() for text in mine]
vectors = accel.tensor(accel.collectives.gather_object(vectors))
vectors = vectors / vectors.norm(2, [1], keepdim=True)
for row, text in zip((vectors @ vectors.T).tolist(), TEXTS):
    state.print(" ".join(f"{number:.3f}" for number in row), text)
state.wait_for_everyone()
