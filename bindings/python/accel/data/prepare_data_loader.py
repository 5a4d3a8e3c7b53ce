# SPDX-License-Identifier: Apache-2.0
"""Prepares loaders of torch."""

import sys

from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from ..modules.argument_types import wrong_kind
from ..state.process import PartialState
from . import generators
from .batch_sampler_shard import BatchSamplerShard
from .dispatcher import DataLoaderDispatcher
from .filled_batches import FillingUp
from .iterable_dataset_shard import IterableDatasetShard
from .loader_adapter import DataLoaderAdapter
from .torch_loader import DataLoaderShard, SkipDataLoader
from .torch_samplers import SeedableRandomSampler, SkipBatchSampler, batch_samplers_of, get_sampler

# What a new loader takes over from another one; the rest is in its batch sampler.
_SETTINGS = {"num_workers": 0, "collate_fn": None, "pin_memory": False, "timeout": 0, "worker_init_fn": None, "multiprocessing_context": None,
             "generator": None, "prefetch_factor": None, "persistent_workers": False, "pin_memory_device": "", "in_order": True}


def prepare_data_loader(dataloader, device=None, num_processes=None, process_index=None, split_batches=False, put_on_device=False,
                        rng_types=None, dispatch_batches=None, even_batches=True, slice_fn_for_dispatch=None, use_seedable_sampler=False,
                        data_seed=None, non_blocking=False, use_stateful_dataloader=False, torch_device_mesh=None):
    """A loader that hands rank `process_index` of `num_processes` its own batches.

    Each rank gets every n-th batch, or with `split_batches` its part of every batch. `even_batches`: all get equally many, where items
    from the beginning fill up the last ones. `dispatch_batches`: rank 0 reads for all; None: for streams that are put on the device.
    `use_seedable_sampler`: a random order follows from a seed (`data_seed`) and the epoch. `rng_types`: generators that get rank 0's
    state when an epoch begins. `put_on_device`: batches go to `device`, with `non_blocking` while the host goes on.
    """
    _check_kind(dataloader)
    state = PartialState()
    ranks = _place(state, num_processes, process_index, torch_device_mesh)
    is_stream = isinstance(dataloader.dataset, IterableDataset)
    if dispatch_batches is None:
        dispatch_batches = put_on_device and is_stream
    if dispatch_batches and not put_on_device:
        raise ValueError("dispatch_batches=True needs put_on_device=True: what rank 0 reads goes to the device of each rank")
    if split_batches:
        _check_size(dataloader, ranks[0])

    dataset, sampler, batch_sampler = dataloader.dataset, get_sampler(dataloader), None if is_stream else batch_samplers_of(dataloader)[0]
    is_seedable = use_seedable_sampler and isinstance(sampler, RandomSampler)
    if is_seedable:
        sampler = SeedableRandomSampler(data_source=sampler.data_source, replacement=sampler.replacement, num_samples=sampler._num_samples,
                                        generator=sampler.generator, data_seed=data_seed)
    synchronized, is_in_shards = None, False
    if ranks[0] != 1 and not dispatch_batches:
        if is_stream:
            synchronized = getattr(dataset, "generator", None)
            is_in_shards = not split_batches and _has_shards(dataset, ranks[0])
            dataset = _shared_stream(dataloader, *ranks, split_batches, is_in_shards)
        else:
            synchronized = sampler if is_seedable else None if use_seedable_sampler else _generator_of(sampler)
            batch_sampler = _shared_batches(batch_sampler, *ranks, split_batches, even_batches)

    settings = {**_settings_of(dataloader), "_drop_last": dataloader.drop_last, "_non_blocking": non_blocking, "torch_device_mesh": torch_device_mesh}
    if _is_stateful(dataloader):
        use_stateful_dataloader, settings["snapshot_every_n_steps"] = True, dataloader.snapshot_every_n_steps
    settings["use_stateful_dataloader"] = use_stateful_dataloader
    if is_in_shards and dataloader.batch_size is not None:
        settings["collate_fn"] = FillingUp(dataloader.collate_fn, dataloader.batch_size)
    if is_stream:
        size = dataloader.batch_size
        settings |= {"drop_last": dataloader.drop_last, "batch_size": size // ranks[0] if split_batches and not dispatch_batches else size}
    elif dataloader.batch_sampler is None:
        settings |= {"sampler": sampler if batch_sampler is None else batch_sampler, "batch_size": None}
    else:
        settings["batch_sampler"] = batch_sampler
    if dispatch_batches:
        prepared = DataLoaderDispatcher(dataset, split_batches=split_batches, slice_fn=slice_fn_for_dispatch, **settings)
    else:
        kept = [name for name in rng_types or () if str(name) != "generator" or synchronized is not None]
        prepared = DataLoaderShard(dataset, device=device if put_on_device else None, rng_types=kept, synchronized_generator=synchronized, **settings)
        prepared.reads_shards = is_in_shards
    if is_seedable and batch_sampler is not None:
        prepared.set_sampler(sampler)
    return prepared


def _shared_stream(dataloader, num_processes, process_index, split_batches, is_in_shards):
    """The stream of one rank."""
    if is_in_shards:
        return dataloader.dataset.shard(num_shards=num_processes, index=process_index)
    return IterableDatasetShard(dataloader.dataset, dataloader.batch_size or 1, dataloader.drop_last, num_processes, process_index, split_batches)


def _has_shards(dataset, count):
    """Whether a stream of Hugging Face datasets can be read in as many parts."""
    datasets = sys.modules.get("datasets")  # whose stream it can only be where the program has imported it
    return datasets is not None and isinstance(dataset, datasets.IterableDataset) and dataset.num_shards >= count


def _shared_batches(batch_sampler, *place):
    if batch_sampler is None:
        raise ValueError("the loader has batch_size=None: there are no batches that the ranks could share; give batch_size=1, or batches as its "
                         "sampler")
    return BatchSamplerShard(batch_sampler, *place)


def _generator_of(sampler):
    """The generator of a sampler's order, which the ranks must have in common; a new one where it would be a new one in each epoch."""
    if hasattr(sampler, "generator") and sampler.generator is None:
        sampler.generator = generators.new_generator()
    return getattr(sampler, "generator", None)


def _place(state, num_processes, process_index, mesh):
    """How many ranks read different data, and which of them this one is."""
    num_processes = state.num_processes if num_processes is None else num_processes
    process_index = state.process_index if process_index is None else process_index
    sizes = {} if mesh is None else {name: mesh[name].size() for name in mesh.mesh_dim_names or ()}
    if not sizes:
        return num_processes, process_index
    count, same = sizes.get("dp_replicate", 1) * sizes.get("dp_shard", 1), sizes.get("tp", 1) * sizes.get("cp", 1) * sizes.get("sp", 1)
    return count, process_index // same % count


def _is_stateful(dataloader):
    """Whether it is torchdata's."""
    module = sys.modules.get("torchdata.stateful_dataloader")
    return module is not None and isinstance(dataloader, module.StatefulDataLoader)


def _check_kind(dataloader):
    if type(dataloader).__iter__ is not DataLoader.__iter__ and not _is_stateful(dataloader):
        raise TypeError(f"{type(dataloader).__qualname__} has an __iter__() of its own, which prepared loaders do not call; put what it does into "
                        "the dataset, the sampler or collate_fn")


def _check_size(dataloader, num_processes):
    size = dataloader.batch_size
    if size is None:
        sampler = dataloader.sampler if dataloader.batch_sampler is None else dataloader.batch_sampler
        size = getattr(sampler, "batch_size", None)
    if size is None:
        raise ValueError(f"split_batches=True needs a batch_size: neither the loader nor its batch sampler, a "
                         f"{type(dataloader.batch_sampler).__name__}, has one")
    if size % num_processes:
        raise ValueError(f"split_batches=True needs a batch size that is a round multiple of the {num_processes} processes; it is {size}")


def _settings_of(dataloader):
    return {name: getattr(dataloader, name, default) for name, default in _SETTINGS.items()}


def skip_first_batches(dataloader, num_batches=0):
    """A new loader whose first epoch leaves out its first batches."""
    if isinstance(dataloader, DataLoaderAdapter):
        return dataloader.skipping(num_batches)
    if not isinstance(dataloader, DataLoader):
        raise wrong_kind("skip_first_batches", dataloader, "a loader", "one of accel or torch")
    settings = _settings_of(dataloader)
    if isinstance(dataloader.dataset, IterableDataset):
        return SkipDataLoader(dataloader.dataset, skip_batches=num_batches, batch_size=dataloader.batch_size, drop_last=dataloader.drop_last,
                              **settings)
    batch_sampler = batch_samplers_of(dataloader)[0]
    if dataloader.batch_sampler is None:
        skipping = SkipBatchSampler(dataloader.sampler if batch_sampler is None else batch_sampler, num_batches)
        return DataLoader(dataloader.dataset, sampler=skipping, batch_size=None, **settings)
    return DataLoader(dataloader.dataset, batch_sampler=SkipBatchSampler(batch_sampler, num_batches), **settings)
