# SPDX-License-Identifier: Apache-2.0
"""Batches of tensors' rows, without the items in between: one operation for each tensor of a TensorDataset.

It makes what torch's loader would make: the same values, order and random numbers. Worker processes are not needed for it.
"""

from itertools import islice

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, Subset, TensorDataset, default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from .batch_sampler_shard import BatchSamplerShard
from .torch_samplers import SeedableRandomSampler, SkipBatchSampler


def reader_of(dataloader):
    """A function that begins an epoch of a loader, with `draws_seed` as one that starts workers: the batches of indices, and a function that
    reads batches by them. None where only torch can read it."""
    tensors, chosen = _tensors_of(dataloader.dataset)
    if (not tensors or dataloader.collate_fn is not default_collate or dataloader.batch_sampler is None
            or dataloader.num_workers > 0 and dataloader.worker_init_fn is not None):
        return None
    return lambda draws_seed: _begin(dataloader, tensors, chosen, draws_seed)


def _tensors_of(dataset):
    """The tensors of a dataset, and which rows of them it has, None for all; (None, None) for a dataset of another kind."""
    if type(dataset) is Subset:
        tensors, chosen = _tensors_of(dataset.dataset)
        if not tensors:
            return None, None
        indices = torch.as_tensor(dataset.indices)
        if indices.dtype != torch.int64 or indices.dim() != 1:
            return None, None
        return tensors, indices if chosen is None else chosen[indices]
    if type(dataset) is not TensorDataset or not all(map(_has_plain_rows, dataset.tensors)):
        return None, None
    return dataset.tensors, None


def _has_plain_rows(tensor):
    return type(tensor) is torch.Tensor and tensor.is_cpu and tensor.layout is torch.strided and tensor.is_contiguous() and not (
        tensor.is_quantized or tensor.requires_grad or tensor.is_conj() or tensor.is_neg())


def _begin(dataloader, tensors, chosen, draws_seed):
    if draws_seed:  # as torch does, before the order is drawn
        torch.empty((), dtype=torch.int64).random_(generator=dataloader.generator)
    pins = dataloader.pin_memory and torch.accelerator.is_available()
    return _index_batches(dataloader), lambda indices: (pin_memory(batch) if pins else batch for batch in
                                                        _rows(dataloader.dataset, tensors, chosen, indices))


def _rows(dataset, tensors, chosen, batches):
    for batch in batches:
        indices = batch if type(batch) is torch.Tensor else torch.as_tensor(batch)
        if indices is batch and chosen is None:
            yield [tensor.index_select(0, indices) for tensor in tensors]
        elif indices.dtype == torch.int64 and indices.dim() == 1:
            indices = indices if chosen is None else chosen[indices]
            yield [tensor[indices] for tensor in tensors]
        else:  # what only the items' own way understands
            yield default_collate([dataset[index] for index in batch])


def knows_order(dataloader):
    """Whether the order of an epoch is known when it begins, so that nothing is drawn later."""
    inner = _around(dataloader.batch_sampler)[1]
    return type(inner) is BatchSampler and _has_known_order(inner.sampler)


def _around(batch_sampler):
    """The package's batch samplers around another one, and that one."""
    around = []
    while type(batch_sampler) in (BatchSamplerShard, SkipBatchSampler):
        around.append(batch_sampler)
        batch_sampler = batch_sampler.batch_sampler
    return around, batch_sampler


def _index_batches(dataloader):
    """The batches of a loader's batch sampler, as tensors of indices where the order of an epoch is known at its beginning."""
    return _ordered_batches(*_around(dataloader.batch_sampler)) if knows_order(dataloader) else iter(dataloader.batch_sampler)


def _has_known_order(sampler):
    if type(sampler) in (RandomSampler, SeedableRandomSampler):
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return type(sampler) is SequentialSampler


def _ordered_batches(around, batch_sampler):
    """The batches of a batch sampler with others around it, which get ranges of places in the order in the stead of lists of indices."""
    sampler, size = batch_sampler.sampler, batch_sampler.batch_size
    order = _order(sampler)
    count = len(order) // size * size if batch_sampler.drop_last else len(order)
    places = (range(begin, min(begin + size, count)) for begin in range(0, count, size))
    for outer in reversed(around):
        places = outer.share_of(places) if type(outer) is BatchSamplerShard else islice(places, outer.skip_batches, None)
    batches = order[:count].split(size) if count else ()
    for place in places:
        if type(place) is not range:  # filled up
            yield order[place]
        elif place.start % size or len(place) < size:
            yield order[place.start:place.stop]
        else:
            yield batches[place.start // size]
    if isinstance(sampler, RandomSampler) and sampler.generator is not None:
        torch.randperm(len(order), generator=sampler.generator)  # torch draws it for a rest of no items
    if isinstance(sampler, SeedableRandomSampler):
        sampler.set_epoch(sampler.epoch + 1)


def _order(sampler):
    """The order that iterating over the sampler gives."""
    count = len(sampler.data_source)
    if type(sampler) is SequentialSampler:
        return torch.arange(count)
    if isinstance(sampler, SeedableRandomSampler):
        sampler.seed_generator()
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    return torch.randperm(count, generator=generator)
