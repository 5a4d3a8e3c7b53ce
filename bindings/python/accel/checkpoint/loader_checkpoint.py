# SPDX-License-Identifier: Apache-2.0
"""The positions of an Accelerator's loaders of torch in its checkpoints."""

import logging
import os
import pickle
import weakref
import zipfile

import torch

from .. import capi
from ..data.loader_adapter import DataLoaderAdapter
from ..data.torch_samplers import SeedableRandomSampler
from ..engine.objects import packed_state, unpacked_state
from ..state.job import current
from .reference_sampler import seed_and_epoch

_NAME = "torch_dataloaders"
_logger = logging.getLogger(__name__)


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

    loaded_from = job.__dict__.setdefault("loaded_from", [])  # the engine keeps the hook, so that it must not keep the job

    def note_folder(models, folder):
        loaded_from[:] = [folder]
        return list(models)

    capi.accel_register_load_state_pre_hook(job, note_folder)
    capi.accel_register_for_checkpointing(job, _NAME, (save, load))
    capi.accel_register_random_state(job, _NAME, (save_of_rank, load_of_rank))


def take_positions_of_reference(accelerator):
    """After load_state() of a folder that Accelerate saved: loaders with use_stateful_dataloader take the positions that torchdata's
    loaders had, and those with a seedable sampler its seed and epoch; of the others each is named in a warning."""
    loaded_from = current(accelerator).__dict__.get("loaded_from")
    if not loaded_from or os.path.exists(os.path.join(loaded_from[0], "accel_manifest.json")):
        return
    folder = loaded_from[0]
    for number, loader in enumerate(accelerator._dataloaders):
        if not isinstance(loader, DataLoaderAdapter):
            continue  # the engine has named it
        for name in (capi.ACCEL_DATALOADER_STATE_NAME, capi.ACCEL_SAMPLER_NAME):
            path = os.path.join(folder, f"{name}_{number}.bin" if number else f"{name}.bin")
            if not os.path.exists(path):
                continue
            problem = _problem_of(loader, path, name)
            if problem is not None:
                _logger.warning("%s is the position of loader %d, which is not restored: %s. The loader begins its epoch again", path, number, problem)


def _problem_of(loader, path, name):
    """Why a loader does not take a position of Accelerate; None if it has taken it."""
    if name == capi.ACCEL_SAMPLER_NAME:
        return _problem_of_sampler(loader, path)
    if not loader.use_stateful_dataloader:
        return "it is that of torchdata's loader; DataLoaderConfiguration(use_stateful_dataloader=True) takes it"
    try:
        loader.load_state_dict(torch.load(path, weights_only=True))
    except Exception as error:  # whatever a file or the program's dataset raises
        return f"{type(error).__name__}: {error}"
    return None


def _problem_of_sampler(loader, path):
    sampler = loader.get_sampler()
    if not isinstance(sampler, SeedableRandomSampler):
        return "it has a seed and an epoch; DataLoaderConfiguration(use_seedable_sampler=True) takes them"
    try:
        seed, epoch = seed_and_epoch(path)
    except (OSError, ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        return f"{type(error).__name__}: {error}"
    sampler.initial_seed = seed
    loader.set_epoch(epoch)
    return None


def _of_all_ranks(loader):
    """The position without torch's default generator, which is each rank's own."""
    state = loader.state_dict()
    return state if loader.use_stateful_dataloader else {**state, "default_generator": (None, None)}
