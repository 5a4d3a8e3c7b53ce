# SPDX-License-Identifier: Apache-2.0
"""The peer's half of the workload sentences: the same texts with torch, transformers and the tokenizers that they use, in the Python
that runs it."""

import argparse
import json
import os
import statistics
import time

import tokenizers
import torch
import transformers

WORDS = """the a of and in to with under engine gradient kitchen morning walked river said quickly without measurement temperature friends
music because nineteen windows garden market answer travel philosophy uncertainty learned simple""".split()
BATCH = 32


def sentence(number):
    seed, chosen = number, []
    for _ in range(4 + number * 7 % 29):
        seed = (seed * 1664525 + 1013904223) % 2**32
        chosen.append(WORDS[(seed >> 16) % len(WORDS)])
    return " ".join(chosen) + "."


def report(part, run, repeat, amount, unit):
    samples = []
    for index in range(1 + repeat):
        start = time.perf_counter()
        result = run()
        if index:
            samples.append(amount(result) / (time.perf_counter() - start))
    print(json.dumps({"bench": "sentences", "params": {"part": part}, "value": statistics.median(samples), "min": min(samples), "max": max(samples),
                      "samples": repeat, "unit": unit, "higher_is_better": True}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--parts", nargs="+", default=["embed", "tokenize_batch", "tokenize_text"])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if "embed" in args.parts:
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.dir)
        model = transformers.AutoModel.from_pretrained(args.dir, dtype=torch.float32).eval()
        batches = [[sentence(first + i) for i in range(BATCH)] for first in range(0, 256, BATCH)]

        @torch.inference_mode()
        def embed():
            for texts in batches:
                inputs = tokenizer(texts, padding=True, return_tensors="pt")
                hidden = model(**inputs).last_hidden_state
                mask = inputs["attention_mask"].unsqueeze(-1).float()
                torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=1)

        report("embed", embed, args.repeat, lambda _: 256, "sentences/s")
    # The crate's own Python package: the least that is between the two.
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(args.dir, "tokenizer.json"))
    tokenizer.no_truncation()
    if "tokenize_batch" in args.parts:
        tokenizer.enable_padding()
        texts = [sentence(i) for i in range(20000)]
        report("tokenize_batch", lambda: tokenizer.encode_batch_fast(texts), args.repeat, len, "sentences/s")
    if "tokenize_text" in args.parts:
        tokenizer.no_padding()
        text = " ".join(sentence(i) for i in range(2000))
        report("tokenize_text", lambda: tokenizer.encode(text), args.repeat, lambda encoding: len(encoding.ids), "tokens/s")


if __name__ == "__main__":
    main()
