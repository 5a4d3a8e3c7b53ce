# SPDX-License-Identifier: Apache-2.0
"""The peer's half of the workload language-model: the same parts with torch and transformers, in the Python that runs it. `make` writes
the folder of the model first, where there is none."""

import argparse
import json
import os
import statistics
import time

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

PARTS = ["first_token", "forward", "train", "prefill", "decode", "requests"]


def clock(run, repeat, warm_up=1):
    samples = []
    for index in range(warm_up + repeat):
        start = time.perf_counter()
        run()
        if index >= warm_up:
            samples.append(time.perf_counter() - start)
    return samples


def report(part, samples, unit, higher=False, **params):
    values = [1 / sample for sample in samples] if higher else samples
    print(json.dumps({"bench": "language_model", "params": dict(part=part, **params), "value": statistics.median(values), "min": min(values),
                      "max": max(values), "samples": len(values), "unit": unit, "higher_is_better": higher}), flush=True)


def tokens(batch, length):
    return torch.arange(batch * length).reshape(batch, length) * 7 % 32000


def generate(model, count, cache, length):
    ids = tokens(1, length)
    kwargs = {} if cache == "dynamic" else {"cache_implementation": "static"}
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0, **kwargs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--make", action="store_true", help="write the folder")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--caches", nargs="+", choices=["static", "dynamic"], default=["static", "dynamic"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    if args.make:
        torch.manual_seed(0)
        config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=24, num_attention_heads=16, vocab_size=32000,
                             rms_norm_eps=1e-6, tie_word_embeddings=False)
        LlamaForCausalLM(config).save_pretrained(args.dir, max_shard_size="200MB")
        return
    dtype = getattr(torch, args.precision)
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(args.dir, dtype=dtype).eval()
    if "first_token" in args.parts:
        generate(model, 1, "dynamic", 16)
        report("first_token", [time.perf_counter() - start], "s", precision=args.precision)
    with torch.no_grad():
        if "forward" in args.parts:
            for batch in args.batch:
                ids = tokens(batch, args.length)
                report("forward", clock(lambda: model(ids, use_cache=False), args.repeat), "s", precision=args.precision, batch=batch)
        if "prefill" in args.parts:
            report("prefill", clock(lambda: generate(model, 1, "dynamic", 512), args.repeat), "s", precision=args.precision)
        if "decode" in args.parts:
            for cache in args.caches:
                # The first token, which reads the prompt, does not count.
                whole, first = (clock(lambda: generate(model, count, cache, 16), args.repeat) for count in (args.tokens + 1, 1))
                each = [(sample - statistics.median(first)) / args.tokens for sample in whole]
                report("decode", each, "tokens/s", True, precision=args.precision, cache=cache)
        if "requests" in args.parts:
            lengths = [(16 + i * 3, 8 + i * 7 % 16 * 3) for i in range(16)]
            seconds = clock(lambda: [generate(model, count, "dynamic", length) for length, count in lengths], args.repeat)
            report("requests", [sample / sum(count for _, count in lengths) for sample in seconds], "tokens/s", True, precision=args.precision,
                   together=False)
    if "train" in args.parts:
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
        for batch in args.batch:
            ids = tokens(batch, args.length)

            def step():
                logits = model(ids, use_cache=False).logits
                torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
                optimizer.step()
                optimizer.zero_grad()

            report("train", clock(step, args.repeat), "s", precision=args.precision, batch=batch)


if __name__ == "__main__":
    main()
