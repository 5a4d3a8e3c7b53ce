# SPDX-License-Identifier: Apache-2.0
"""Datasets: Python objects with items, and what all have that the engine reads itself."""

from .. import capi
from ..engine.objects import packed_item
from ..generated import methods

_UNSET = capi.ACCEL_UNSET_INT64


class Dataset:
    """A map-style dataset. Subclasses have `__len__()` and `__getitem__(index)`; with `__getitems__(indices)` they make those of a batch, and
    `set_epoch(epoch)` gets the epoch that a loader begins."""

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__()")


class IterableDataset:
    """Items one after another. Subclasses have `__iter__()`, and where they like `__len__()` and `set_epoch(epoch)`."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} has no __iter__()")


class EngineDataset(methods.EngineDataset, Dataset):
    """A dataset that the engine reads."""

    def __init__(self, handle):
        self.handle = handle

    def __len__(self):
        length = capi.accel_dataset_length(self.handle)
        if length < 0:
            raise TypeError("a stream does not say how many items it has")
        return length

    def __getitem__(self, index):
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"item {index} of {length}")
        return capi.accel_dataset_item(self.handle, index % length)

    def __iter__(self):
        return (self[index] for index in range(len(self)))

    def as_stream(self, seed=None):
        """These items as a stream, in a new order every epoch with a seed: for merge()."""
        return EngineDataset(capi.accel_dataset_as_stream(self.handle, _UNSET if seed is None else seed))

    def __repr__(self):
        length = capi.accel_dataset_length(self.handle)
        return f"{type(self).__name__}({'a stream' if length < 0 else f'{length} items'})"


def handle_of(dataset):
    """The engine's dataset for any dataset of Python: its own one, map-style, or iterable."""
    if isinstance(dataset, EngineDataset):
        return dataset.handle
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        many = getattr(dataset, "__getitems__", None)
        return capi.accel_dataset_create((lambda: len(dataset), lambda index: packed_item(dataset[index]),
                                          None if many is None else lambda indices: [packed_item(item) for item in many(indices)],
                                          _set_epoch_of(dataset) if hasattr(dataset, "set_epoch") else None))
    if hasattr(dataset, "__iter__"):
        length = len(dataset) if hasattr(dataset, "__len__") else _UNSET
        return capi.accel_dataset_create_stream(_Readers(dataset).callbacks(), length, 1)
    raise TypeError(f"a {type(dataset).__name__} is not a dataset: expected __len__ and __getitem__, or __iter__")


def _set_epoch_of(dataset):
    def set_epoch(epoch):
        dataset.set_epoch(epoch)  # whatever it returns

    return set_epoch


class _Readers:
    """The iterators over a Python object that are open, by number."""

    def __init__(self, dataset):
        self.dataset, self.open, self.made = dataset, {}, 0

    def callbacks(self):
        return self.begin, self.next, None, self.end

    def begin(self, epoch, shard, num_readers):
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        self.made += 1
        self.open[self.made] = iter(self.dataset)
        return self.made

    def next(self, reader):
        return packed_item(next(self.open[reader]))

    def end(self, reader):
        del self.open[reader]
