#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Samples a second of prepared loaders of torch, a JSON line for each figure: python bench/torch_dataloader.py --package accel

`tensor`: 20,000 rows of 64 numbers and a label in a TensorDataset. `items`: the same rows from a dataset in Python, as dicts. `ragged`:
rows of 1 to 128 tokens from a dataset in Python, padded by a collate function in Python. Shuffled, batches of 32; a sample is an epoch,
the start and end of the workers included. --package accelerate measures the peer.
"""

import argparse
import importlib
import json
import statistics
import time

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

BATCH = 32


class Items(Dataset):
    def __init__(self, count):
        self.rows = torch.randn(count, 64)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"row": self.rows[index], "label": index % 10}


class Ragged(Dataset):
    def __init__(self, count):
        lengths = torch.randint(1, 129, (count,))
        self.ends = lengths.cumsum(0).tolist()
        self.tokens = torch.randint(1, 32000, (self.ends[-1],))

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, index):
        return self.tokens[self.ends[index - 1] if index else 0:self.ends[index]]


def padded(rows):
    return pad_sequence(rows, batch_first=True)


KINDS = {"tensor": lambda count: (TensorDataset(torch.randn(count, 64), torch.randint(10, (count,))), None),
         "items": lambda count: (Items(count), None),
         "ragged": lambda count: (Ragged(count), padded)}


def epoch(loader):
    begin = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="accel", choices=("accel", "accelerate"))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 2])
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    accelerator = importlib.import_module(args.package).Accelerator(cpu=True)
    for kind in args.kinds:
        torch.manual_seed(0)
        dataset, collate = KINDS[kind](args.rows)
        for workers in args.workers:
            loader = accelerator.prepare(DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=collate, num_workers=workers))
            epoch(loader)  # warm
            rates = [args.rows / epoch(loader) for _ in range(args.repeat)]
            print(json.dumps({"bench": "torch_dataloader", "params": {"dataset": kind, "rows": args.rows, "batch": BATCH, "workers": workers},
                              "value": round(statistics.median(rates)), "min": round(min(rates)), "max": round(max(rates)), "samples": len(rates),
                              "unit": "samples/s", "higher_is_better": True}), flush=True)


if __name__ == "__main__":
    main()
