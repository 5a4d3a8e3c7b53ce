"""Continues a text with a model from a folder of Hugging Face, and prints the words as they come:

    python generate.py FOLDER "Once upon a time" --max-tokens 200 --temperature 0.8 --top-p 0.95 --seed 1

The most likely tokens are taken, or with a temperature tokens are drawn.
"""

import argparse
import sys

from accel import Accelerator, Tokenizer, nn

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("prompt")
parser.add_argument("--temperature", type=float, default=0)
parser.add_argument("--top-p", type=float, default=1)
parser.add_argument("--max-tokens", type=int, default=100)
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
sampling = {"sample": True, "temperature": given.temperature} if given.temperature else {}

accelerator = Accelerator()
tokenizer = Tokenizer(given.folder)
model = nn.from_folder(given.folder).to(accelerator.device).eval()
ids = tokenizer.encode_batch([given.prompt])["input_ids"].to(accelerator.device)

sys.stdout.reconfigure(encoding="utf-8")
stream = tokenizer.decode_stream(skip_special_tokens=True)
model.generate(ids, on_tokens=lambda token: print(stream.step(token), end="", flush=True), max_new_tokens=given.max_tokens, top_p=given.top_p, seed=given.seed,
               stop_tokens=tokenizer.describe()["eos_token_ids"], **sampling)
print(stream.finish())
accelerator.end_training()
