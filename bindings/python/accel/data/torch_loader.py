# SPDX-License-Identifier: Apache-2.0
"""Loaders of torch that hand each rank its own batches, on the device."""

from ..engine.device_copy import to_device
from ..state.job import is_made
from . import generators
from .iterable_dataset_shard import IterableDatasetShard
from .loader_adapter import DataLoaderAdapter
from .loop_state import DataLoaderStateMixin
from .step_rows import StepRows
from .torch_samplers import batch_samplers_of

_END = object()


class SkipDataLoader(DataLoaderAdapter, DataLoaderStateMixin):
    """A loader that leaves out the first batches of each epoch."""

    device, rng_types, synchronized_generator = None, None, None

    def __init__(self, dataset, skip_batches=0, use_stateful_dataloader=False, **kwargs):
        super().__init__(dataset, use_stateful_dataloader=use_stateful_dataloader, **kwargs)
        self.skip_batches = skip_batches

    def __iter__(self):
        """The batches of an epoch. One is read ahead, so that the last one is known to be the last."""
        if self.rng_types and is_made() and not self._goes_on():
            generators.synchronize(self.rng_types, self.synchronized_generator)
        loop, failure = self.begin(), None
        try:
            batches, step = self._open_epoch()
            batch = next(batches, _END)
            rows = StepRows(self)
            moves = self.device is not None and not (self._reader.reads_rows and self.device.type == "cpu")
            while batch is not _END:
                if moves:
                    batch = to_device(batch, self.device, self._non_blocking)
                following = _END
                self._snapshot()
                self._before_reading_ahead()
                try:
                    following = next(batches, _END)
                except Exception as raised:  # of the batch after this one
                    failure = raised
                is_last = following is _END and failure is None
                self._handed_out, self._is_handed_out = step + 1, is_last
                if is_last or rows.changes_at(step):
                    self._report_batch(loop, *rows.at(step, is_last), is_last, rows.own)
                if is_last:
                    self._snapshot()
                yield batch
                if failure is not None:
                    raise failure
                batch, step = following, step + 1
            self._end_epoch()
        finally:
            batches = failure = None  # a traceback keeps this frame, and should not keep the workers and itself
            self.end()


class DataLoaderShard(SkipDataLoader):
    """A loader of one rank's batches, on its device.

    `rng_types`: the generators that get rank 0's state when an epoch begins: "torch", "cuda", and "generator" for
    `synchronized_generator`. `total_batch_size` and `total_dataset_length` are those of all ranks together."""

    def __init__(self, dataset, device=None, rng_types=None, synchronized_generator=None, skip_batches=0, use_stateful_dataloader=False,
                 _drop_last=False, _non_blocking=False, torch_device_mesh=None, iteration=0, **kwargs):
        super().__init__(dataset, skip_batches, use_stateful_dataloader, **kwargs)
        self.device, self.rng_types, self.synchronized_generator = device, rng_types, synchronized_generator
        self._drop_last, self._non_blocking, self.torch_device_mesh = _drop_last, _non_blocking, torch_device_mesh
        self.iteration = iteration

    @property
    def total_batch_size(self):
        if isinstance(self.dataset, IterableDatasetShard):
            return self.dataset.group_size
        sampler = batch_samplers_of(self)[0]
        return sampler.batch_size * (1 if getattr(sampler, "split_batches", False) else getattr(sampler, "num_processes", 1))

    @property
    def total_dataset_length(self):
        return self.dataset.total_length if hasattr(self.dataset, "total_length") else len(self.dataset)
