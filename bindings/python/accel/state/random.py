# SPDX-License-Identifier: Apache-2.0
"""Random numbers: seeds for all generators of the program, and generators of their own."""

import random as python_random
import sys

from .. import capi
from ..generated import methods
from ..generated.methods import get_rng_state, set_rng_state  # noqa: F401  (names of torch)
from ..parallel.collectives import broadcast
from ..tensors.device import Device
from .job import current, is_made
from .options import fill


class Generator(methods.Generator):
    """Draws its own numbers, as torch.Generator; samplers and synchronize_rng_states() take it."""

    def __init__(self, seed=0, device="cpu"):
        self.handle = capi.accel_generator_create(seed, Device(device))

    def manual_seed(self, seed):
        capi.accel_generator_set_seed(self.handle, seed)
        return self


def set_seed(seed, device_specific=False, deterministic=False):
    """Seeds the engine's generators, which are torch's, Python's `random`, and NumPy's if it is loaded. `device_specific` adds the rank."""
    if is_made():
        state = current()
    else:  # only this process
        if device_specific:
            raise ValueError("device_specific needs the rank: make an Accelerator() or a PartialState() first")
        state = capi.accel_state_create(fill(capi.accel_state_options_t(), {"cpu": 1, "process_index": 0, "num_processes": 1}))
    capi.accel_set_seed(state, seed, int(device_specific), int(deterministic))
    host_seed = seed + (capi.accel_process_index(state) if device_specific else 0)
    python_random.seed(host_seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(host_seed % 2**32)


def rng_types_of_engine(rng_types):
    """The engine's form of an Accelerator's rng_types. "generator", the default, is that of a loader's order: orders follow from
    seed and epoch, the same on all ranks, so there is nothing to make equal."""
    names = [str(name) for name in rng_types or ()]
    return ",".join(name for name in names if name != "generator") or None


def synchronize_rng_states(rng_types, generator=None):
    """Gives all ranks the states of rank 0's generators: "torch", the type of the state's device ("npu"), "generator"."""
    if "generator" in map(str, rng_types) and generator is None:
        raise ValueError('"generator" in rng_types needs the generator')
    if generator is not None and not isinstance(generator, Generator):  # one of torch
        rng_types = [name for name in rng_types if str(name) != "generator"]
        generator.set_state(broadcast(generator.get_state()))
        generator = None
    if rng_types:
        capi.accel_synchronize_rng_states(current(), ",".join(map(str, rng_types)), None if generator is None else generator.handle)


def synchronize_rng_state(rng_type=None, generator=None):
    """Gives all ranks the state of one of rank 0's generators."""
    if rng_type is None:
        raise ValueError("rng_type is None; expected \"torch\", \"generator\", or the type of the device")
    synchronize_rng_states([rng_type], generator)
