# SPDX-License-Identifier: Apache-2.0
"""Random numbers of torch on all ranks."""

import torch

from .. import capi
from ..engine.values import to_engine
from ..state.job import current


def synchronize(rng_types, generator=None):
    """Gives all ranks the states of rank 0's generators: "torch" and those of the device, which are the engine's too, and
    "generator", the one given."""
    names = [str(name) for name in rng_types]
    engine = [name for name in names if name != "generator"]
    if engine:
        capi.accel_synchronize_rng_states(current(), ",".join(engine), None)
    if generator is not None and "generator" in names and capi.accel_num_processes(current()) > 1:
        state = generator.get_state()
        capi.accel_broadcast(current(), to_engine(state), 0)
        generator.set_state(state)


def states_of(generators):
    """Where generators stand; None for those that are not there."""
    return [None if generator is None else generator.get_state() for generator in generators]


def set_states_of(generators, states):
    for generator, state in zip(generators, states):
        if generator is not None and state is not None:
            generator.set_state(state)


def new_generator(seed=None):
    """A generator with a seed, else with one that torch's default generator draws."""
    generator = torch.Generator(device=torch.get_default_device())
    generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()) if seed is None else seed)
    return generator
