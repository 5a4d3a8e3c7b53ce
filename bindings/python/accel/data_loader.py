"""Loaders of torch with the reference's names. The package's own are in accel.data."""

import importlib

_HOMES = {
    "batch_sampler_shard": ("BatchSamplerShard",),
    "data_loader": ("DataLoaderShard", "SkipDataLoader"),
    "dispatcher": ("DataLoaderDispatcher",),
    "iterable_dataset_shard": ("IterableDatasetShard",),
    "loader_adapter": ("DataLoaderAdapter", "DataLoaderStateMixin"),
    "prepare_data_loader": ("prepare_data_loader",),
    "samplers": ("SeedableRandomSampler", "SkipBatchSampler", "get_sampler"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME, "skip_first_batches"])


def skip_first_batches(dataloader, num_batches=0):
    """A new loader over the same data whose first epoch leaves out its first batches."""
    from . import data

    if isinstance(dataloader, data.DataLoader):
        return data.skip_first_batches(dataloader, num_batches)
    from .pytorch.prepare_data_loader import skip_first_batches as skip

    return skip(dataloader, num_batches)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".pytorch.{_HOME[name]}", __package__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOME})
