"""What all prepared loaders of torch have: torch's loader inside, and a position."""

import importlib.util

import torch
from torch.utils.data import DataLoader

from ..state import GradientState
from . import generators, samplers
from .epoch_reader import EpochReader

_OF_ONE_PROCESS = ("_loops", "_reader")


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
        self._began_with = None  # the states of the generators when the epoch began
        self._resumed = False  # whether the next iteration continues at the position

    def _generators(self):
        """Those that the order of the items may come from, beside torch's default one."""
        found = [getattr(self.get_sampler(), "generator", None), getattr(self.base_dataloader, "generator", None)]
        return [generator for generator in found if isinstance(generator, torch.Generator)]

    def _open_epoch(self):
        """An iterator over the batches that are left of the epoch, which begins if the loader was not resumed, and how many are not."""
        if not self._resumed:
            self._forget_position()
        self._resumed = False
        self.set_epoch(self.iteration)
        skip, again = max(self.skip_batches, self._handed_out), self._began_with
        here = torch.get_rng_state()
        if again is None:
            self._began_with = generators.states_of(self._generators())
        else:
            generators.set_states_of(self._generators(), again)
        batches = self._reader.read(skip * self._batches_of_step)
        if again is not None:
            torch.set_rng_state(here)  # what follows in the program is not drawn again
        return batches, skip

    def _end_epoch(self):
        self.iteration += 1
        self._forget_position()

    def _snapshot(self):
        """torchdata's state of the batches that are handed out, which the one that is read ahead is not."""
        if self.use_stateful_dataloader:
            self.dl_state_dict = self.base_dataloader.state_dict()
            self.dl_state_dict["_iterator_finished"] = self.end_of_dataloader

    def state_dict(self):
        """Where the loader stands: `epoch`; how many `batches` of it this rank was handed, and `samples` all ranks; the states of the
        generators that drew the order. With use_stateful_dataloader torchdata's own."""
        if self.use_stateful_dataloader:
            return self.dl_state_dict
        size = self._items_of_step()
        return {"epoch": self.iteration, "batches": self._handed_out, "samples": None if size is None else self._handed_out * size,
                "generators": self._began_with if self._handed_out else None}

    def load_state_dict(self, state_dict):
        """The next iteration continues where the state was taken. With other ranks, or another batch size, that must be at the end of
        a step of theirs."""
        if self.use_stateful_dataloader:
            self.base_dataloader.load_state_dict(state_dict)
            return
        batches, samples, size = state_dict["batches"], state_dict["samples"], self._items_of_step()
        if samples is not None and size is not None:
            if samples % size:
                raise ValueError(f"the state of the loader is {samples} items into an epoch, which is no number of steps of {size} items; "
                                 "resume with ranks and a batch size whose product divides it")
            batches = samples // size
        self._forget_position()
        self.iteration, self._handed_out, self._began_with = state_dict["epoch"], batches, state_dict["generators"]
        self._resumed = True

    def resume(self):
        """A loader continues at its position without being told to."""

    def _items_of_step(self):
        try:
            return self.total_batch_size
        except (AttributeError, TypeError):
            return None

    def skipping(self, num_batches):
        """A new loader over the same data whose first epoch leaves out its first batches. It takes over the epoch in which this one
        would continue after load_state_dict()."""
        made = _restored(type(self), self.__reduce__()[1][1])
        made._forget_position()
        made._handed_out = made._left_out = num_batches
        made._resumed = True
        if self._resumed and self._handed_out:
            made._began_with = self._began_with
            self._end_epoch()
        return made


def _restored(kind, content):
    made = kind.__new__(kind)
    made.__dict__.update(content, _reader=EpochReader(content["base_dataloader"], content["use_stateful_dataloader"]))
    made._resumed = bool(made._handed_out)
    return made
