#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_programs.py [--package NAME] [--ranks N] [--rounds N] [WORKLOAD ...]: programs of torch with accel and with Accelerate, by turns.

Prints a line of JSON for each workload: the median of accel (`value`), that of the other package (`peer`), and how many times as fast accel is
(`ratio`). Runs with the Python that runs this, which needs torch, accel and the other package. Every rank computes with one thread.

  train_mlp_64x2 ...  milliseconds a step of a multi-layer perceptron, WIDTH x DEPTH, 64 rows a rank, AdamW
  overhead            microseconds a step of a model with one number: accumulate, backward, step, zero_grad
  loader_0, loader_2  samples a second of a shuffled loader of 20,000 rows of 64 numbers, with 0 and with 2 workers
  all_reduce          microseconds of reducing 4 MiB
"""

import argparse
import importlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time

WORKLOADS = ("train_mlp_64x2", "train_mlp_512x4", "train_mlp_2048x4", "overhead", "loader_0", "loader_2", "all_reduce")


def mlp(torch, width, depth):
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))


def train_mlp(torch, accelerator, name):
    """Milliseconds of each step."""
    width, depth = map(int, name.rpartition("_")[2].split("x"))
    steps, warmup = {64: 400, 512: 100}.get(width, 15), 5
    torch.manual_seed(1)
    model = mlp(torch, width, depth)
    rows = 64 * accelerator.num_processes * (steps + warmup)
    data = torch.utils.data.TensorDataset(torch.randn(rows, width), torch.randint(0, 10, (rows,)))
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
    seconds, begin = [], time.perf_counter()
    for inputs, classes in loader:
        loss = torch.nn.functional.cross_entropy(model(inputs), classes)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        now = time.perf_counter()
        seconds.append(now - begin)
        begin = now
    return [1e3 * second for second in seconds[warmup:]], "ms"


def overhead(torch, accelerator, name):
    """Microseconds of each step."""
    model, inputs = torch.nn.Linear(1, 1), torch.ones(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3))
    seconds = []
    for _ in range(600):
        begin = time.perf_counter()
        with accelerator.accumulate(model):
            accelerator.backward(model(inputs).sum())
            optimizer.step()
            optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    return [1e6 * second for second in seconds[100:]], "us"


def loader(torch, accelerator, name):
    """Samples a second of each of three epochs."""
    workers = int(name.rpartition("_")[2])
    data = torch.utils.data.TensorDataset(torch.randn(20000, 64))
    batches = accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, num_workers=workers))
    rates = []
    for _ in range(3):
        begin = time.perf_counter()
        samples = sum(len(rows) for rows, in batches)
        rates.append(samples / (time.perf_counter() - begin))
    return rates, "samples/s"


def all_reduce(torch, accelerator, name):
    """Microseconds of each call."""
    tensor, seconds = torch.ones(1 << 20), []
    for _ in range(120):
        begin = time.perf_counter()
        accelerator.reduce(tensor, "sum")
        seconds.append(time.perf_counter() - begin)
    return [1e6 * second for second in seconds[20:]], "us"


def run_rank(name, package):
    """One rank of a workload; rank 0 prints its median."""
    import torch

    torch.set_num_threads(1)
    accelerator = importlib.import_module(package).Accelerator(cpu=True)
    workload = next(function for function in (train_mlp, overhead, loader, all_reduce) if name.startswith(function.__name__))
    samples, unit = workload(torch, accelerator, name)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        print(json.dumps({"value": statistics.median(samples), "unit": unit}))
    accelerator.end_training()


def measure(name, package, ranks):
    """The median that rank 0 prints, and its unit."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1,
           "ACCELERATE_USE_CPU": 1}
    started = [subprocess.Popen([sys.executable, __file__, "--package", package, "--of-rank", name], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True,
                                env={**os.environ, **{key: str(value) for key, value in {**job, "RANK": rank, "LOCAL_RANK": rank}.items()}})
               for rank in range(ranks)]
    printed = [rank.communicate(timeout=300)[0] for rank in started]
    if not printed[0].strip():  # Accelerate's ranks may abort at their end, when the figure is there
        sys.exit(f"{name} with {package}: ranks ended with {[rank.returncode for rank in started]}")
    found = json.loads(printed[0].splitlines()[-1])
    return found["value"], found["unit"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="accelerate", help="what accel is compared with")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--of-rank", help=argparse.SUPPRESS)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS)
    arguments = parser.parse_args()
    if arguments.of_rank:
        run_rank(arguments.of_rank, arguments.package)
        return
    unknown = sorted(set(arguments.workloads) - set(WORKLOADS))
    if unknown:
        sys.exit(f"{', '.join(unknown)} is not a workload; expected some of {', '.join(WORKLOADS)}")
    for name in arguments.workloads:
        values = {package: [] for package in ("accel", arguments.package)}
        for _ in range(arguments.rounds):
            for package, found in values.items():
                value, unit = measure(name, package, arguments.ranks)
                found.append(value)
        ours, theirs = (statistics.median(found) for found in values.values())
        ratio = ours / theirs if unit == "samples/s" else theirs / ours
        print(json.dumps({"bench": name, "params": {"procs": arguments.ranks, "peer": arguments.package}, "value": round(ours, 3),
                          "peer": round(theirs, 3), "ratio": round(ratio, 2), "unit": unit}), flush=True)


if __name__ == "__main__":
    main()
