# SPDX-License-Identifier: Apache-2.0
"""Loaders: batches of a dataset's items, in the order of a sampler. The engine orders, shares, reads ahead and collates."""

from .. import capi
from ..compat import missing
from ..engine.objects import from_this_host, made_again, packed_item, unpacked
from ..generated import datasets, samplers
from ..generated.datasets import *  # noqa: F403
from ..generated.samplers import *  # noqa: F403
from ..state.handlers import warn_of_copies_that_block, whole_number
from ..state.job import current
from ..state.options import fill
from ..state.process import loop_over
from .dataset import Dataset, EngineDataset, IterableDataset, handle_of
from .datasets import Subset, TensorDataset, map_file
from .sampler import Sampler


class DataLoader:
    """Batches of the items of a dataset; Accelerator.prepare() shares them among the ranks.

    `dataset` is one of the classes here, any object with a length and items, or one that can be iterated. `collate_fn(items)` makes
    a batch of items. `batch_sampler` is an object whose iteration gives lists of numbers. `seed` and the epoch give the order of
    `shuffle`. `prefetch_factor`: batches that each worker keeps ready. With `num_workers` the dataset and collate_fn are called
    from threads of the engine. `collate="pad"` fills items up to the longest one: padding_value, pad_to_multiple_of, padding_side,
    padding_masks.
    """

    def __init__(self, dataset, batch_size=None, shuffle=None, sampler=None, batch_sampler=None, num_workers=None, collate_fn=None,
                 pin_memory=None, drop_last=None, seed=None, prefetch_factor=None, collate=None, padding_side=None, **padding):
        if shuffle and sampler is not None:
            raise ValueError("give shuffle or a sampler, not both")
        if batch_sampler is not None and (batch_size, shuffle, sampler, drop_last) != (None,) * 4:
            raise ValueError("batch_sampler goes without batch_size, shuffle, sampler and drop_last")
        if sampler is not None and not isinstance(sampler, Sampler):
            raise TypeError(f"sampler is a {type(sampler).__name__}; expected a Sampler of accel.data")
        seed = whole_number("seed", seed, least=0)
        self.dataset, self.sampler, self.batch_sampler, self.collate_fn = dataset, sampler, batch_sampler, collate_fn
        self._arguments = {"batch_size": batch_size, "shuffle": shuffle, "sampler": sampler, "batch_sampler": batch_sampler,
                           "num_workers": num_workers, "collate_fn": collate_fn, "pin_memory": pin_memory, "drop_last": drop_last,
                           "seed": seed, "prefetch_factor": prefetch_factor, "collate": collate, "padding_side": padding_side, **padding}
        self.batch_size, self.drop_last = None if batch_sampler is not None else 1 if batch_size is None else batch_size, bool(drop_last)
        options = fill(capi.accel_dataloader_options_t(), {
            "batch_size": batch_size, "shuffle": shuffle or None, "drop_last": drop_last, "seed": seed, "prefetch": prefetch_factor,
            "sampler": None if sampler is None else sampler.handle, "num_workers": num_workers, "pin_memory": pin_memory,
            "collate": collate, "padding_side": padding_side, **padding})
        self._hold(capi.accel_dataloader_create(handle_of(dataset), options))
        if collate_fn is not None:
            capi.accel_dataloader_set_collate(self.handle, lambda items: packed_item(collate_fn(unpacked(items, trusted=True))))
        if batch_sampler is not None:
            unset = capi.ACCEL_UNSET_INT64
            capi.accel_dataloader_set_batch_sampler(self.handle, lambda epoch: _batches_of(batch_sampler, epoch),
                                                    getattr(batch_sampler, "batch_size", None) or unset)

    def _hold(self, handle):
        self.handle = handle
        self._iterator = None  # the one that moves the engine's loader itself, a token of its own
        self._in_hand = handle  # the loader that gave the latest batch
        self._left_early = False
        self._epochs_beside = 0  # that other iterators completed meanwhile
        self._skips = {}  # how many batches an epoch leaves out
        return self

    def of_handle(self, handle, kind=None):
        """A loader over the same data that the engine made from this one."""
        kind = kind or type(self)
        made = kind.__new__(kind)
        made.__dict__.update(self.__dict__)
        return made._hold(handle)

    def __iter__(self):
        """Each iterator has a place of its own. The first one moves the engine's loader; while it lives, others have loaders of theirs,
        which begin the same epoch."""
        if self._iterator is not None:
            handle = capi.accel_skip_first_batches(self.handle, self._skips.get(self.epoch, 0))
            if self._epochs_beside:
                capi.accel_dataloader_set_epoch(handle, self.epoch)
            yield from self._batches(handle)
            self._epochs_beside += 1
            return
        if self._left_early:  # its epoch begins again
            capi.accel_dataloader_set_epoch(self.handle, self.epoch)
        self._iterator = token = object()
        self._left_early = True
        try:
            yield from self._batches(self.handle)
            self._left_early = False
        finally:
            if self._iterator is token:
                self._iterator = None
                if self._epochs_beside:
                    self.set_epoch(self.epoch)

    def _batches(self, handle):
        trusted = self._is_from_this_host()
        while True:
            status, batch = capi.accel_dataloader_next(handle)
            if status == capi.ACCEL_ITER_END:
                return
            self._in_hand = handle
            yield unpacked(batch, trusted)

    def _is_from_this_host(self):
        return True

    def __len__(self):
        length = capi.accel_dataloader_length(self.handle)
        if length < 0:
            raise TypeError("a stream does not say how many batches it has")
        return length

    @property
    def epoch(self):
        """The epoch that the loader is in."""
        return capi.accel_dataloader_epoch(self.handle) + self._epochs_beside

    @property
    def valid_rows(self):
        """How many rows of the batch in hand count; the others only fill it up."""
        return capi.accel_dataloader_valid_rows(self._in_hand)

    def set_epoch(self, epoch):
        capi.accel_dataloader_set_epoch(self.handle, epoch)
        self.resume()

    def state_dict(self):
        """Where the loader stands."""
        return capi.accel_dataloader_state_dict(self.handle)

    def load_state_dict(self, state_dict):
        capi.accel_dataloader_load_state_dict(self.handle, state_dict)
        self.resume()

    def resume(self):
        """The next iteration continues at the position of the engine, and does not restart the epoch."""
        self._iterator, self._left_early, self._epochs_beside = None, False, 0

    def __reduce__(self):
        return made_again, (type(self), (self.dataset,), self._arguments, self.state_dict())

    def __repr__(self):
        length = capi.accel_dataloader_length(self.handle)
        shown = repr(self.dataset) if isinstance(self.dataset, EngineDataset) else type(self.dataset).__name__
        return f"{type(self).__name__}({'a stream' if length < 0 else f'{length} batches'} of {shown})"


class Prepared(DataLoader):
    """A loader that hands each rank its own batches, on the device."""

    def _is_from_this_host(self):  # rank 0 may hand out what it reads
        return from_this_host(current())

    end_of_dataloader, remainder = False, -1  # as in GradientState, of the batch in hand or of the last loop

    def __iter__(self):
        self.end_of_dataloader, self.remainder = False, -1
        with loop_over(self):
            state = current()
            for batch in super().__iter__():
                if capi.accel_end_of_dataloader(state):
                    self.end_of_dataloader, self.remainder = True, capi.accel_remainder(state)
                elif self.remainder < 0:  # that of a stream is not known before its end
                    self.remainder = capi.accel_remainder(state)
                yield batch

    iteration = property(lambda self: self.epoch, lambda self, epoch: self.set_epoch(epoch), doc="The epoch, by its name in Accelerate.")

    def __getattr__(self, name):
        raise AttributeError(missing.text(f"Prepared.{name}") or f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def total_batch_size(self):
        """Items that a step takes on all ranks together; None for batches of any size."""
        size = capi.accel_dataloader_total_batch_size(self.handle)
        return None if size < 0 else size

    @property
    def total_dataset_length(self):
        """Items of the data, for all ranks together."""
        length = capi.accel_dataloader_total_dataset_length(self.handle)
        if length < 0:
            raise TypeError("a stream does not say how many items it has")
        return length

    def __reduce__(self):
        raise TypeError("a prepared loader belongs to its job: copy or pickle the loader that it was made from, and prepare that")


def _batches_of(sampler, epoch):
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    return [list(batch) for batch in sampler]


def prepare(loader, state, config, slice_fn_for_dispatch=None):
    """The prepared loader; `config` is an accel_dataloader_config_t."""
    if config.put_on_device == 1:
        warn_of_copies_that_block(config.non_blocking == 1, loader._arguments["pin_memory"] in (None, True))
    if slice_fn_for_dispatch is not None:
        capi.accel_dataloader_set_slice(loader.handle, lambda rows, begin, end, process_index, num_processes: packed_item(
            slice_fn_for_dispatch(unpacked(rows, trusted=True), slice(begin, end), process_index, num_processes)))
    return loader.of_handle(capi.accel_prepare_data_loader(state, loader.handle, config), Prepared)


def skip_first_batches(dataloader, num_batches=0):
    """A new loader over the same data whose first epoch leaves out its first batches."""
    made = dataloader.of_handle(capi.accel_skip_first_batches(dataloader.handle, num_batches))
    made._skips[made.epoch] = num_batches
    return made


__all__ = [*datasets.__all__, *samplers.__all__, "DataLoader", "Dataset", "EngineDataset", "IterableDataset",  # noqa: PLE0604
           "Prepared", "Sampler", "Subset", "TensorDataset", "map_file", "skip_first_batches"]
