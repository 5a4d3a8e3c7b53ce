# SPDX-License-Identifier: Apache-2.0
"""Base of all prepared loaders of torch: torch's loader inside, and a position."""

import importlib.util
import weakref
from itertools import chain, islice

import torch
from torch.utils.data import DataLoader

from ..state.process import GradientState
from . import generators, torch_samplers as samplers
from .epoch_reader import EpochReader
from .iterable_dataset_shard import IterableDatasetShard
from .sharded_stream import EndingTogether

_OF_ONE_PROCESS = ("_loops", "_reader", "_continued_by", "_first", "_shards")


def _stateful_class():
    if importlib.util.find_spec("torchdata.stateful_dataloader") is None:
        raise ImportError("use_stateful_dataloader=True needs torchdata 0.8.0 or newer: pip install torchdata; every prepared loader has "
                          "state_dict() and load_state_dict() without it")
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader


class DataLoaderAdapter:
    """A loader of torch with another one inside, `base_dataloader`, whose attributes it has and of whose class it says to be: a
    DataLoader, or with `use_stateful_dataloader` torchdata's StatefulDataLoader."""

    skip_batches = 0  # that are left out in each epoch
    keeps_position = True  # whether load_state() of an Accelerator takes it back to where it was
    of_rank = None  # what load_state() read of torch's default generator, until its end
    _continues = False  # whether it is in the epoch in which another one would have continued
    reads_shards = False  # whether each rank reads other parts of a stream, which may end at other times
    _fills_up = False  # whether the rows of the first step are repeated in the last one, here and not by the sampler
    _batches_of_step = 1  # that are read for a batch of each rank

    def __init__(self, dataset, use_stateful_dataloader=False, batch_sampler=None, **kwargs):
        kind = _stateful_class() if use_stateful_dataloader else DataLoader
        self.use_stateful_dataloader = use_stateful_dataloader
        self.base_dataloader = kind(dataset, batch_sampler=batch_sampler, **kwargs)
        self.gradient_state = GradientState()
        self.iteration = 0
        self._reader = EpochReader(self.base_dataloader, use_stateful_dataloader)
        self._forget_position()
        if use_stateful_dataloader:
            self.dl_state_dict = self.base_dataloader.state_dict()

    def __getattr__(self, name):
        if name == "base_dataloader":  # not there yet
            raise AttributeError(name)
        return getattr(self.base_dataloader, name)

    def __dir__(self):
        return {*dir(type(self)), *vars(self), *dir(self.base_dataloader)}

    @property
    def __class__(self):
        return self.base_dataloader.__class__

    def __len__(self):
        return max(len(self.base_dataloader) - self.skip_batches - self._left_out, 0)

    def __reduce__(self):
        content = {name: value for name, value in self.__dict__.items() if name not in _OF_ONE_PROCESS}
        return _restored, (type(self), content)

    def get_sampler(self):
        return samplers.get_sampler(self)

    def set_sampler(self, sampler):
        samplers.set_sampler(self, sampler)

    def set_epoch(self, epoch):
        """The next iteration is that of this epoch."""
        if self.iteration != epoch:
            self._forget_position()
        self.iteration = epoch
        samplers.set_epoch(self, epoch)

    # The position

    def _forget_position(self):
        self._handed_out = 0  # batches of this epoch, with those that are left out
        self._left_out = 0  # by skip_first_batches()
        self._is_handed_out = False  # whether that was all of the epoch
        self._began_with = None  # the states of the generators when the epoch began, and
        self._began_default = None  # that of torch's default one
        self._ahead = None  # the latter before the batch was read that is read ahead
        self._resumed = False  # whether the next iteration continues at the position
        self._continued_by = None  # the loader of skip_first_batches() that goes on with the epoch of a state

    def _generators(self):
        """The generators that the order of the items may come from, beside torch's default generator: each by its place, None where there is
        none."""
        batch_sampler, sampler, dataset = samplers.batch_samplers_of(self)[-1], self.get_sampler(), self.dataset
        dataset = dataset.dataset if isinstance(dataset, IterableDatasetShard) else dataset
        found: list = []
        for owner in (sampler, self.base_dataloader, batch_sampler, dataset):
            thing = owner if isinstance(owner, samplers.SeedableRandomSampler) else getattr(owner, "generator", None)
            is_one = isinstance(thing, (torch.Generator, samplers.SeedableRandomSampler))
            found.append(thing if is_one and not any(thing is other for other in found) else None)
        return found

    def _open_epoch(self):
        """An iterator over the batches that are left of the epoch, which begins if the loader was not resumed, and how many are not."""
        if not self._resumed:
            self._forget_position()
        self._resumed, self._continued_by = False, None
        self.set_epoch(self.iteration)
        skip, goes_on = max(self.skip_batches, self._handed_out), self._began_with is not None
        if not goes_on:
            self._began_with, self._began_default = generators.states_of(self._generators()), torch.get_rng_state()
            return self._read(skip), skip
        here = torch.get_rng_state()
        generators.set_states_of(self._generators(), self._began_with)
        if self._began_default is not None:
            torch.set_rng_state(self._began_default)
        batches = self._read(skip)
        if self._ahead is not None:
            torch.set_rng_state(self._ahead)
        if self._ahead is not None or skip == 0:  # the next step was read before the state was taken
            batches = chain(list(islice(batches, self._batches_of_step)), batches)
        torch.set_rng_state(here)  # what follows in the program is not drawn again
        return batches, skip

    def _read(self, skip):
        """An iterator over the batches behind the first ones. The first step is read in any case where its rows fill up the last one."""
        step, skip = skip, skip * self._batches_of_step
        self._first, batches = self._reader.read(skip, min(skip, self._batches_of_step) if self._fills_up or self.reads_shards else 0)
        if not self.reads_shards:
            return batches
        self._shards = EndingTogether(batches, self._first, step, self.drop_last)
        return self._shards

    def _goes_on(self):
        """Whether the next iteration continues in the middle of an epoch, whose order is known."""
        return self._resumed and self._began_with is not None

    def _before_reading_ahead(self):
        self._ahead = torch.get_rng_state() if self._reader.draws else None

    def _end_epoch(self):
        self.iteration += 1
        self._continues = False
        self._forget_position()

    def _snapshot(self):
        """torchdata's state of the batches that are handed out, which the one that is read ahead is not."""
        if self.use_stateful_dataloader:
            self.dl_state_dict = self.base_dataloader.state_dict()
            self.dl_state_dict["_iterator_finished"] = self.end_of_dataloader

    def state_dict(self):
        """Where the loader stands: `epoch`; how many `batches` of it this rank was handed, and `samples` all ranks; where the generators
        stood that draw its order; whether its `workers` were there before. An epoch whose batches are all handed out is over. With
        use_stateful_dataloader torchdata's own."""
        if self.use_stateful_dataloader:
            return self.dl_state_dict
        other = None if self._continued_by is None else self._continued_by()
        if other is not None and other._continues:
            return other.state_dict()
        is_within = self._handed_out > 0 and not self._is_handed_out
        batches, size = self._handed_out if is_within else 0, self._items_of_step()
        return {"epoch": self.iteration + self._is_handed_out, "batches": batches, "samples": None if size is None else batches * size,
                "generators": self._began_with if is_within else generators.states_of(self._generators()),
                "default_generator": (self._began_default, self._ahead) if is_within else (None, None),
                "workers": self._reader.had_workers if is_within else self._reader.has_workers}

    def load_state_dict(self, state_dict):
        """The next iteration continues where the state was taken. With other ranks, or another batch size, that must be at the end of
        a step of theirs. The states of torch's default generator in it are of the rank that gave it."""
        if self.use_stateful_dataloader:
            self.base_dataloader.load_state_dict(state_dict)
            return
        batches, samples, size = state_dict["batches"], state_dict["samples"], self._items_of_step()
        if samples is not None and size is not None:
            if samples % size:
                raise ValueError(f"the state of the loader is {samples} items into an epoch, which is not a number of steps of {size} items; "
                                 "resume with ranks and a batch size whose product divides it")
            batches = samples // size
        self._forget_position()
        self.iteration, self._handed_out, self._resumed = state_dict["epoch"], batches, True
        self._began_default, self._ahead = state_dict["default_generator"]
        self._reader.has_workers = state_dict["workers"]
        if batches:
            self._began_with = state_dict["generators"]
        else:  # they may be drawn from before the epoch begins
            generators.set_states_of(self._generators(), state_dict["generators"])

    def resume(self):
        """load_state() of an Accelerator has come to its end."""
        if self.of_rank is not None:
            self._began_default, self._ahead = self.of_rank
            self.of_rank = None

    def _items_of_step(self):
        try:
            return self.total_batch_size
        except (AttributeError, TypeError):
            return None

    def skipping(self, num_batches):
        """A new loader over the same data whose first epoch leaves out its first batches. After load_state_dict() it is the one in which
        this loader would continue: this one goes on with the epoch after it, and until then its state is that of the new one."""
        made = _restored(type(self), self.__reduce__()[1][1])
        made._forget_position()
        made._handed_out = made._left_out = num_batches
        made._resumed = True
        if self._resumed:
            made._began_with, made._began_default, made._reader = self._began_with, self._began_default, self._reader
            made._ahead = self._ahead if num_batches == self._handed_out else None
            made._continues = True
            self._end_epoch()
            self._continued_by = weakref.ref(made)
        return made


def _restored(kind, content):
    made = kind.__new__(kind)
    made.__dict__.update(content, _reader=EpochReader(content["base_dataloader"], content["use_stateful_dataloader"]))
    made._continues, made._continued_by = False, None
    made._resumed = bool(made._handed_out)
    return made
