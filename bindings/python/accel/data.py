"""Datasets and loaders. The engine orders, shares and prefetches; a dataset that is a Python object has its items asked for by
number."""

from collections.abc import Mapping

from . import capi, ops
from .creation import arange, as_tensor, tensor
from .handlers import fill
from .samplers import (DistributedSampler, LengthGroupedSampler, RandomSampler, Sampler, SeedableRandomSampler, SequentialSampler,
                       SubsetRandomSampler, WeightedRandomSampler)
from .state import current
from .tensors import Tensor
from .values import to_engine


class Dataset:
    """Items by number. Subclasses have `__len__()` and `__getitem__(index)`."""

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__()")


class EngineDataset(Dataset):
    """A dataset that the engine reads itself; all else is a Python object with a length and items."""

    def __init__(self, handle):
        self.handle = handle

    def __len__(self):
        return capi.accel_dataset_length(self.handle)

    def __getitem__(self, index):
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"item {index} of {length}")
        return capi.accel_dataset_item(self.handle, index % length)

    def __iter__(self):
        return (self[index] for index in range(len(self)))

    def __repr__(self):
        return f"{type(self).__name__}({len(self)} items)"


class TensorDataset(EngineDataset):
    """Rows of tensors; an item is a list with one row of each."""

    def __init__(self, *tensors):
        super().__init__(capi.accel_dataset_tensors([as_tensor(part) for part in tensors]))


class TextDataset(EngineDataset):
    """The bytes of a file, or of all files below a folder, cut into windows of `sequence_length`: inputs, and the same shifted by one."""

    def __init__(self, path, sequence_length, suffix=None):
        super().__init__(capi.accel_dataset_text(str(path), suffix, sequence_length))


class Subset(EngineDataset):
    """Items [begin, end) of a dataset of the engine."""

    def __init__(self, dataset, begin, end):
        super().__init__(capi.accel_dataset_subset(dataset.handle, begin, end))


def default_collate(items):
    """Items become one batch: tensors and numbers are stacked, lists, tuples and dicts member by member, texts become a list."""
    first = items[0]
    if isinstance(first, Mapping):
        return {key: default_collate([item[key] for item in items]) for key in first}
    if isinstance(first, (list, tuple)):
        if any(len(item) != len(first) for item in items):
            raise ValueError("items of different lengths; give the loader a collate_fn")
        return [default_collate(list(members)) for members in zip(*items)]
    if isinstance(first, str):
        return list(items)
    if isinstance(first, (bool, int, float)):
        return tensor(list(items))
    return ops.stack([item if type(item) is Tensor else as_tensor(item) for item in items], 0)


# The arguments of a loader that are fields of accel_dataloader_options_t.
_OPTIONS = ("batch_size", "drop_last", "prefetch", "seed", "shuffle")


class DataLoader:
    """Batches of the items of a dataset; Accelerator.prepare() shares them among the ranks.

    `dataset` is one of the classes here, or any object with a length and items. `collate_fn(items)` makes the batch of a dataset
    that is a Python object. `seed` and the epoch give the order of `shuffle`. `prefetch`: batches that the engine keeps ready.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, drop_last=False, collate_fn=None, seed=None, prefetch=None):
        self.dataset, self.batch_size, self.drop_last, self.sampler = dataset, batch_size, drop_last, sampler
        if shuffle and sampler is not None:
            raise ValueError("give shuffle or a sampler, not both")
        if sampler is not None and not isinstance(sampler, Sampler):
            raise TypeError(f"sampler is a {type(sampler).__name__}; expected a Sampler of accel.data")
        given = {"batch_size": batch_size, "drop_last": drop_last, "prefetch": prefetch, "seed": seed, "shuffle": shuffle or None}
        options = fill(capi.accel_dataloader_options_t(), {name: given[name] for name in _OPTIONS})
        if sampler is not None:
            options.sampler = sampler.handle
        self._items = None if isinstance(dataset, EngineDataset) else dataset  # asked for by number
        if self._items is None and collate_fn is not None:
            self._items = dataset
        self.collate_fn = collate_fn or default_collate
        source = dataset.handle if self._items is None else capi.accel_dataset_tensors([arange(len(dataset))])
        self._hold(capi.accel_dataloader_create(source, options))

    def _hold(self, handle, device=None, like=None):
        if like is not None:
            self.__dict__.update(like.__dict__)
        self.handle, self._device, self._inside = handle, device, False
        return self

    def of_handle(self, handle, device=None, kind=None):
        """A loader over the same data that the engine made from this one."""
        return (kind or type(self)).__new__(kind or type(self))._hold(handle, device, self)

    @property
    def asks_python(self):
        """Whether items come from a Python object."""
        return self._items is not None

    def __iter__(self):
        if self._inside:  # the last iteration was left early: its epoch begins again
            capi.accel_dataloader_set_epoch(self.handle, self.state_dict()["epoch"])
        self._inside = True
        while True:
            status, batch = capi.accel_dataloader_next(self.handle)
            if status == capi.ACCEL_ITER_END:
                self._inside = False
                return
            yield batch if self._items is None else self._fetch(batch[0])

    def _fetch(self, numbers):
        batch = self.collate_fn([self._items[number] for number in numbers.tolist()])
        if self._device is None:
            return batch
        return capi.accel_send_to_device(to_engine(batch), self._device, 0, None)

    def __len__(self):
        return capi.accel_dataloader_length(self.handle)

    def set_epoch(self, epoch):
        capi.accel_dataloader_set_epoch(self.handle, epoch)
        self._inside = False

    def state_dict(self):
        """Where the loader stands."""
        return capi.accel_dataloader_state_dict(self.handle)

    def load_state_dict(self, state_dict):
        capi.accel_dataloader_load_state_dict(self.handle, state_dict)
        self._inside = False

    def resume(self):
        """The next iteration goes on where the engine stands, and does not begin the epoch again."""
        self._inside = False

    def __repr__(self):
        return f"{type(self).__name__}({len(self)} batches of {self.batch_size}, {self.dataset!r})"


class Prepared(DataLoader):
    """A loader that hands each rank its own batches, on the device."""


def prepare(loader, config):
    """The prepared loader; `config` is an accel_dataloader_config_t."""
    if loader.asks_python:  # numbers stay here; the batch goes to the device when it is made
        places = config.put_on_device != 0
        config.put_on_device = 0
        device = capi.accel_device(current()) if places else None
        return loader.of_handle(capi.accel_prepare_data_loader(current(), loader.handle, config), device, Prepared)
    return loader.of_handle(capi.accel_prepare_data_loader(current(), loader.handle, config), None, Prepared)


def skip_first_batches(dataloader, num_batches=0):
    """A new loader over the same data whose first epoch leaves out its first batches."""
    return dataloader.of_handle(capi.accel_skip_first_batches(dataloader.handle, num_batches), dataloader._device)


__all__ = ["DataLoader", "Dataset", "DistributedSampler", "LengthGroupedSampler", "Prepared", "RandomSampler", "Sampler",
           "SeedableRandomSampler", "SequentialSampler", "Subset", "SubsetRandomSampler", "TensorDataset", "TextDataset",
           "WeightedRandomSampler", "default_collate", "skip_first_batches"]
