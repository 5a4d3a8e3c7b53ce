# SPDX-License-Identifier: Apache-2.0
"""Loaders whose batches are the micro-batches of a step, for each data rank."""

import torch

from ..engine.torch_types import is_torch_loader
from .arguments import get_args

_SETTINGS = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor",
             "persistent_workers", "pin_memory_device")


def with_step_rows(loader, rows):
    """The loader with this number of rows in a batch; it itself where it has them."""
    if not is_torch_loader(loader) or getattr(loader, "_is_accelerate_prepared", False) or loader.batch_size == rows:
        return loader
    settings = {name: getattr(loader, name) for name in _SETTINGS if hasattr(loader, name)}
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return type(loader)(loader.dataset, batch_size=rows, drop_last=loader.drop_last, **settings)
    if loader.batch_size is None and not hasattr(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler, "batch_size"):
        raise ValueError("a loader has no batch_size, which num_micro_batches multiplies: expected one of rows, or a batch sampler with a batch_size")
    if loader.batch_sampler is None:  # its sampler gives batches
        loader.sampler.batch_size = rows
        return loader
    if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        loader.batch_sampler.batch_size = rows
        return loader
    return type(loader)(loader.dataset, batch_size=rows, sampler=loader.sampler, drop_last=loader.drop_last, **settings)


def rows_of(loader):
    """The rows of its batches, None where it has no number of them."""
    if loader.batch_size is not None:
        return loader.batch_size
    return getattr(loader.sampler if loader.batch_sampler is None else loader.batch_sampler, "batch_size", None)


def loaders_of_datasets(accelerator, provider):
    """Three loaders over the datasets that a function of the program makes, behind the samples that are consumed already; to be prepared."""
    plugin, args = accelerator.state.megatron_lm_plugin, get_args()
    size, evaluations = plugin.global_batch_size, plugin.eval_iters
    iterations = args.train_iters if args.train_iters is not None else -(-(args.train_samples or 0) // size)
    samples = args.train_samples if args.train_samples is not None else iterations * size
    datasets = provider([samples, (iterations // plugin.eval_interval + 1) * evaluations * size, evaluations * size])
    consumed = plugin.consumed_samples or [0, 0, 0]
    args.consumed_train_samples, args.consumed_valid_samples, args.consumed_test_samples = consumed
    return tuple(None if dataset is None else _loader(plugin, dataset, done) for dataset, done in zip(datasets, consumed))


def _loader(plugin, dataset, consumed):
    rows = plugin.micro_batch_size * plugin.num_micro_batches
    rest = dataset if consumed == 0 else torch.utils.data.Subset(dataset, range(consumed % max(len(dataset), 1), len(dataset)))
    return torch.utils.data.DataLoader(rest, batch_size=rows, drop_last=True)
