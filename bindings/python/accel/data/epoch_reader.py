# SPDX-License-Identifier: Apache-2.0
"""The batches of an epoch of one of torch's loaders."""

import copy
from itertools import islice

import torch
from torch.utils.data import IterableDataset

from . import generators, tensor_rows, worker_batches
from .torch_samplers import drop


class EpochReader:
    """Reads the epochs of a loader, each in the fastest way that gives torch's batches."""

    def __init__(self, dataloader, is_stateful=False):
        self.dataloader, self.is_stateful = dataloader, is_stateful
        self.has_workers = False  # whether workers live that an epoch need not start: it draws no seed for them
        self.had_workers = False  # the same when the latest epoch began
        self.reads_rows = False  # of tensors on the CPU
        self.draws = False  # whether reading may draw from torch's default generator
        self._loader = self._indices = None  # what torch's iterators are made of

    def begin(self):
        """An epoch begins. Whether its workers live already."""
        self.had_workers, self.has_workers = self.has_workers, self.dataloader.num_workers > 0 and self.dataloader.persistent_workers
        return self.had_workers

    def read(self, skip=0, kept=0):
        """The first `kept` batches, and an iterator over those behind the first `skip` ones. The batches between them are not read where the
        dataset is map-style. Afterwards the order is drawn if any are left out."""
        dataloader = self.dataloader
        if self.is_stateful:
            return _first_and_rest(iter(dataloader), skip, kept)
        had_workers, rows = self.begin(), tensor_rows.reader_of(dataloader)
        self.reads_rows = rows is not None
        self.draws = not tensor_rows.knows_order(dataloader) if self.reads_rows else dataloader.num_workers == 0
        if self.reads_rows:
            indices, batches = rows(not had_workers)
            rest = _Rest(indices, skip, kept)
            batches = batches(rest)
            return _begun(rest, list(islice(batches, kept)), batches)
        is_stream = isinstance(dataloader.dataset, IterableDataset)
        if self._loader is None:
            self._loader, self._indices = _readable(dataloader, is_stream)
        if self._indices is not None:
            self._indices.skip, self._indices.kept = skip, kept
        if not had_workers:
            self._loader.__dict__["_iterator"] = None  # those of an epoch before the one that was resumed
        batches = _without_a_seed(self._loader) if had_workers and self._loader._iterator is None else iter(self._loader)
        if dataloader.num_workers > 0:
            batches = worker_batches.received(batches)
        if is_stream:
            return _first_and_rest(batches, skip, kept)
        return _begun(self._indices.latest, list(islice(batches, kept)), batches)


def _first_and_rest(batches, skip, kept):
    first = list(islice(batches, kept))
    drop(batches, skip - kept)
    return first, batches


def _begun(rest, first, batches):
    rest.begin()
    return first, batches


def _readable(dataloader, is_stream):
    """A loader over the same data, and its indices, of which the first ones may be left out. From workers its batches come packed."""
    reader = worker_batches.packing(dataloader) if dataloader.num_workers > 0 else copy.copy(dataloader)
    indices = None if is_stream else _Indices(dataloader._index_sampler)
    if indices is not None:
        reader.__dict__["batch_sampler" if dataloader._auto_collation else "sampler"] = indices
    reader.__dict__["_iterator"] = None
    return reader, indices


def _without_a_seed(loader):
    """An iterator whose workers get a seed that leaves all generators where they are: it takes the place of one whose workers lived on."""
    own, here = loader.generator, torch.get_rng_state()
    loader.generator = generators.new_generator()
    torch.set_rng_state(here)
    try:
        return iter(loader)
    finally:
        loader.generator = own


class _Indices:
    """The batches of a batch sampler, each time but for those between the first `kept` and the first `skip` ones. `latest` is what was made
    last."""

    latest = None

    def __init__(self, batch_sampler):
        self.batch_sampler, self.skip, self.kept = batch_sampler, 0, 0

    def __iter__(self):
        self.latest = _Rest(iter(self.batch_sampler), self.skip, self.kept)
        return self.latest

    def __len__(self):
        return len(self.batch_sampler) - self.skip + self.kept


class _Rest:
    """The first `kept` ones of an iterator and those behind the first `skip`; what is between them is taken by begin(), or when it is in the
    way."""

    def __init__(self, batches, skip, kept):
        self.batches, self.left, self.kept = batches, skip - kept, kept

    def begin(self):
        drop(self.batches, self.left)
        self.left = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.kept > 0:
            self.kept -= 1
        else:
            self.begin()
        return next(self.batches)
