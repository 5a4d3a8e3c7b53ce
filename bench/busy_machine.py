#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""busy_machine.py [--loops N ...] [--rounds N] [--package NAME]: two ranks of a training of transformers beside other work, by turns with Accelerate.

The other work is N loops of a shell that do nothing but compute. Prints a line of JSON for each N: the median seconds of four epochs of a small
Llama with accel (`value`), with the other package (`peer`), and their ratio. accel is started by `accel launch` ($ACCEL_PROGRAM, or in PATH), the
other by torchrun. Runs with the Python that runs this, which needs torch, transformers and both packages.
"""

import argparse
import importlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

LOOP = "while :; do :; done"


def train(package):
    """Seconds of four epochs, without the start."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    accelerator = importlib.import_module(package).Accelerator(cpu=True)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, max_position_embeddings=64))
    rows = torch.utils.data.TensorDataset(torch.randint(0, 256, (64, 32)))
    loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
    begin = time.perf_counter()
    for _ in range(4):
        for (tokens,) in loader:
            accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    if accelerator.is_main_process:
        print(f"took {time.perf_counter() - begin}", flush=True)


def command(package):
    script = [os.path.abspath(__file__), "--of-rank", package]
    if package == "accel":
        return [os.environ.get("ACCEL_PROGRAM") or shutil.which("accel"), "launch", "--cpu", "--num-processes", "2", "--", sys.executable, *script]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *script]


def measure(package, loops):
    """Beside so many loops."""
    others = [subprocess.Popen(["sh", "-c", LOOP]) for _ in range(loops)]
    try:
        done = subprocess.run(command(package), capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    finally:
        for other in others:
            other.kill()
            other.wait()
    return float(re.search(r"took ([0-9.]+)", done.stdout)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, nargs="+", default=[0, 2, 6])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--package", default="accelerate")
    parser.add_argument("--of-rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.of_rank:
        return train(arguments.of_rank)
    if not command("accel")[0]:
        parser.error("the program accel is neither in ACCEL_PROGRAM nor in PATH")
    for loops in arguments.loops:
        seconds = {"accel": [], arguments.package: []}
        for _ in range(arguments.rounds):
            for package, found in seconds.items():
                found.append(measure(package, loops))
        ours, theirs = (statistics.median(found) for found in seconds.values())
        print(json.dumps({"workload": "busy_machine", "loops": loops, "value": round(ours, 3), "peer": round(theirs, 3),
                          "ratio": round(ours / theirs, 3), "unit": "s", "rounds": arguments.rounds}), flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
