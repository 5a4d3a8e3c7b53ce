"""The batches of an epoch of one of torch's loaders."""

import copy

from torch.utils.data import IterableDataset

from . import tensor_rows, worker_batches
from .samplers import drop


class EpochReader:
    """Reads the epochs of a loader, each in the fastest way that gives torch's batches."""

    def __init__(self, dataloader, is_stateful=False):
        self.dataloader, self.is_stateful = dataloader, is_stateful
        self.with_workers = None  # the loader whose batches come packed
        self.has_seeded_workers = False
        self.reads_rows = False  # of tensors on the CPU

    def read(self, skip=0):
        """An iterator over the batches but for the first ones, which are not read where the data has items by number. Afterwards
        the order is drawn if any are left out."""
        dataloader = self.dataloader
        keeps_workers = dataloader.num_workers > 0 and dataloader.persistent_workers
        if self.is_stateful:
            return _dropped(iter(dataloader), skip)
        rows = tensor_rows.reader_of(dataloader)
        self.reads_rows = rows is not None
        if self.reads_rows:
            draws_seed = not self.has_seeded_workers
            self.has_seeded_workers = keeps_workers
            return rows(skip, draws_seed)
        if dataloader.num_workers > 0:
            if self.with_workers is None:  # its truth is its length, which a stream may not have
                self.with_workers = worker_batches.packing(dataloader)
            dataloader = self.with_workers
        is_stream = isinstance(dataloader.dataset, IterableDataset)
        batches = iter(dataloader) if is_stream or not skip else _rest(dataloader, skip)
        return _dropped(worker_batches.received(batches) if dataloader.num_workers > 0 else batches, skip if is_stream else 0)


def _dropped(batches, count):
    drop(batches, count)
    return batches


def _rest(dataloader, skip):
    """An iterator of torch's over the batches but for the first ones."""
    rest, indices = copy.copy(dataloader), _IndicesOfRest(dataloader._index_sampler, skip)
    rest.__dict__.update({"batch_sampler" if dataloader._auto_collation else "sampler": indices, "_iterator": None})
    batches = iter(rest)
    indices.begin()
    return batches


class _IndicesOfRest:
    """The batches of a batch sampler but for the first ones. Their order is drawn by begin(), or when a batch is asked for."""

    def __init__(self, batch_sampler, skip):
        self.batch_sampler, self.skip = batch_sampler, skip

    def __iter__(self):
        self.batches, self.left = iter(self.batch_sampler), self.skip
        return self

    def begin(self):
        drop(self.batches, self.left)
        self.left = 0

    def __next__(self):
        self.begin()
        return next(self.batches)

    def __len__(self):
        return len(self.batch_sampler) - self.skip
