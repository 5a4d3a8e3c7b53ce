# SPDX-License-Identifier: Apache-2.0
"""Samplers: the order of a loader's items."""

from collections import deque
from itertools import islice

import torch
from torch.utils.data import BatchSampler, RandomSampler


class SeedableRandomSampler(RandomSampler):
    """A random order that follows from a seed and the epoch: the same on all ranks, and in every run. The seed is `data_seed`, else
    torch's own seed."""

    def __init__(self, *args, data_seed=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.initial_seed = torch.random.initial_seed() if data_seed is None else data_seed
        self.epoch = 0

    def seed_generator(self):
        """Puts the generator where this epoch's order begins."""
        if self.generator is None:
            self.generator = torch.Generator(device=torch.get_default_device())
        self.generator.manual_seed(self.initial_seed + self.epoch)

    def __iter__(self):
        self.seed_generator()
        yield from super().__iter__()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def get_state(self):
        """The state that the ranks must have in common, in the form of a generator's."""
        return torch.tensor([self.initial_seed])

    def set_state(self, state):
        self.initial_seed = int(state)


class SkipBatchSampler(BatchSampler):
    """The batches of another batch sampler without the first ones."""

    def __init__(self, batch_sampler, skip_batches=0):
        self.batch_sampler, self.skip_batches = batch_sampler, skip_batches

    batch_size = property(lambda self: getattr(self.batch_sampler, "batch_size", None))
    drop_last = property(lambda self: getattr(self.batch_sampler, "drop_last", False))

    def __iter__(self):
        return islice(iter(self.batch_sampler), self.skip_batches, None)

    @property
    def total_length(self):
        return len(self.batch_sampler)

    def __len__(self):
        return max(len(self.batch_sampler) - self.skip_batches, 0)


def drop(batches, count):
    """Takes the first ones from an iterator."""
    deque(islice(batches, count), maxlen=0)


def batch_samplers_of(dataloader):
    """The batch sampler of a loader, which may stand in the place of its sampler, and those that it is made from, the outermost first;
    [None] where items are not parts of batches."""
    found = [dataloader.sampler if isinstance(dataloader.sampler, BatchSampler) else dataloader.batch_sampler]
    while getattr(found[-1], "batch_sampler", None) is not None:
        found.append(found[-1].batch_sampler)
    return found


def get_sampler(dataloader):
    """The sampler that gives the order of a loader's items; None where the batch sampler has none."""
    innermost = batch_samplers_of(dataloader)[-1]
    return dataloader.sampler if innermost is None else getattr(innermost, "sampler", None)


def set_sampler(dataloader, sampler):
    """Another order of a loader's items."""
    batch_samplers_of(dataloader)[-1].sampler = sampler


def set_epoch(dataloader, epoch):
    """Tells the batch samplers of a loader, its sampler and its dataset which epoch begins, if they want to know it."""
    for thing in (*batch_samplers_of(dataloader), get_sampler(dataloader), dataloader.dataset):
        if hasattr(thing, "set_epoch"):
            thing.set_epoch(epoch)
