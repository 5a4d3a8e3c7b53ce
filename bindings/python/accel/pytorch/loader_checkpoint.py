"""The positions of an Accelerator's loaders of torch in its checkpoints."""

import weakref

from .. import capi
from ..objects import packed_state, unpacked_state
from ..state import current
from .loader_adapter import DataLoaderAdapter


def register(accelerator):
    """From now on the positions of the accelerator's loaders of torch are saved and loaded. Rank 0's are those of all ranks."""
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
        return packed_state([loader.state_dict() for loader in loaders()])

    def load(saved):
        states, known = unpacked_state(saved, trusted=False), loaders()
        if len(states) != len(known):
            raise ValueError(f"the checkpoint has the positions of {len(states)} loaders of torch, and {len(known)} are prepared; prepare the same ones")
        for loader, state in zip(known, states):
            if loader.keeps_position:
                loader.load_state_dict(_of_this_rank(state))

    capi.accel_register_for_checkpointing(job, "torch_dataloaders", (save, load))


def _of_this_rank(state):
    """The order of the items is that of rank 0; torch's default generator is each rank's own."""
    if state.get("generators") is not None and capi.accel_process_index(current()) != 0:
        return {**state, "generators": [None, *state["generators"][1:]]}
    return state
