# SPDX-License-Identifier: Apache-2.0
"""Streams of which each rank takes its part."""

from itertools import islice
from math import ceil

import torch
from torch.utils.data import IterableDataset


class IterableDatasetShard(IterableDataset):
    """The items of one rank. Yields this rank's part, `process_index`, of each group of `batch_size` items for each of `num_processes` ranks, or
    with `split_batches` for all of them together. The last group is filled up with the items of the first one, or dropped
    with `drop_last`. Every rank reads the whole stream, which must be the same on all of them."""

    def __init__(self, dataset, batch_size=1, drop_last=False, num_processes=1, process_index=0, split_batches=False):
        if split_batches and batch_size % num_processes:
            raise ValueError(f"split_batches needs a batch size that is a round multiple of the {num_processes} processes; "
                             f"it is {batch_size}")
        self.dataset, self.batch_size, self.drop_last, self.split_batches = dataset, batch_size, drop_last, split_batches
        self.num_processes, self.process_index = num_processes, process_index
        self.epoch = 0
        self.last_group = None

    @property
    def group_size(self):
        """Items of a step of all ranks."""
        return self.batch_size if self.split_batches else self.batch_size * self.num_processes

    @property
    def total_length(self):
        return len(self.dataset)

    def set_epoch(self, epoch):
        self.epoch = epoch
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __len__(self):
        groups = len(self.dataset) / self.group_size
        return (int(groups) if self.drop_last else ceil(groups)) * (self.group_size // self.num_processes)

    def __iter__(self):
        """`last_group` says in the end how many items the last group had before it was filled up."""
        generator = getattr(self.dataset, "generator", None)
        if not hasattr(self.dataset, "set_epoch") and isinstance(generator, torch.Generator):
            generator.manual_seed(self.epoch)
        self.last_group = None
        part = self.group_size // self.num_processes
        begin = self.process_index * part
        reading, first = iter(self.dataset), None
        while group := list(islice(reading, self.group_size)):
            first = first or list(group)
            if len(group) < self.group_size:
                if self.drop_last:
                    return
                self.last_group = len(group)
                while len(group) < self.group_size:
                    group += first
            yield from group[begin:begin + part]
