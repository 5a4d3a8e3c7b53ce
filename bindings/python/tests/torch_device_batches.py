# SPDX-License-Identifier: Apache-2.0
"""Batches of torch's loaders on a simulated accelerator: they come from page-locked memory, with the values of the host. Run by
test_torch_devices.py in a process with ACCEL_DEVICE_PLUGINS."""

import ctypes
import os

import simulated_torch
import torch
from torch.utils.data import DataLoader, TensorDataset

import accel
from simulated_torch import DEVICE

NUM_STATISTICS = 12  # int64 each: simulated_device_statistics
PAGEABLE_COPIES = 6


def pageable_copies():
    statistics = (ctypes.c_int64 * NUM_STATISTICS)()
    ctypes.CDLL(os.environ["SIMULATED_DEVICE_LIBRARY"]).simulated_device_get_statistics(0, statistics)
    return statistics[PAGEABLE_COPIES]


def collate(items):
    """Not what torch makes by itself, so that torch reads the items."""
    return {"rows": torch.stack([rows for rows, _ in items]), "text": "unchanged", "labels": [torch.stack([label for _, label in items])]}


def main():
    simulated_torch.register()
    accelerator = accel.Accelerator(torch_device=DEVICE)
    rows, labels = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), torch.arange(20)
    plain, collated = accelerator.prepare(DataLoader(TensorDataset(rows, labels), batch_size=4),
                                          DataLoader(TensorDataset(rows, labels), batch_size=4, collate_fn=collate))
    before, found = pageable_copies(), []
    for batch, other in zip(plain, collated):
        assert str(batch[0].device) == str(other["rows"].device) == str(other["labels"][0].device) == DEVICE and other["text"] == "unchanged"
        found.append((*batch, other["rows"], other["labels"][0]))
    assert pageable_copies() == before, pageable_copies() - before
    for column, expected in enumerate((rows, labels, rows, labels)):
        assert torch.equal(torch.cat([batch[column].cpu() for batch in found]), expected)
    print("equal")


main()
