"""The positions of an Accelerator's loaders of torch in its checkpoints."""

import weakref

from .. import capi
from ..objects import packed_state, unpacked_state
from ..state import current
from .loader_adapter import DataLoaderAdapter

_NAME = "torch_dataloaders"


def register(accelerator):
    """From now on the positions of the accelerator's loaders of torch are saved and loaded. Rank 0's are those of all
    ranks, but for torch's default generator."""
    job = current(accelerator)
    owners = job.__dict__.setdefault("owners_of_torch_loaders", [])  # the latest Accelerator of the job, which nothing keeps alive here
    is_registered = bool(owners)
    owners[:] = [weakref.ref(accelerator)]
    if not is_registered:
        _register(job, owners)


def _register(job, owners):
    def loaders():
        owner = owners[0]()
        return [] if owner is None else [loader for loader in owner._dataloaders if isinstance(loader, DataLoaderAdapter)]

    def save():
        return packed_state([_of_all_ranks(loader) for loader in loaders()])

    def load(saved):
        states, known = unpacked_state(saved, trusted=False), loaders()
        if len(states) != len(known):
            raise ValueError(f"the checkpoint has the positions of {len(states)} loaders of torch, and {len(known)} are prepared; prepare the same ones")
        for loader, state in zip(known, states):
            if loader.keeps_position:
                loader.load_state_dict(state)

    def save_of_rank():
        return packed_state([None if loader.use_stateful_dataloader else loader.state_dict()["default_generator"] for loader in loaders()])

    def load_of_rank(saved):
        for loader, state in zip(loaders(), unpacked_state(saved, trusted=False)):
            if loader.keeps_position:
                loader.of_rank = state

    capi.accel_register_for_checkpointing(job, _NAME, (save, load))
    capi.accel_register_random_state(job, _NAME, (save_of_rank, load_of_rank))


def _of_all_ranks(loader):
    """The position without torch's default generator, which is each rank's own."""
    state = loader.state_dict()
    return state if loader.use_stateful_dataloader else {**state, "default_generator": (None, None)}
