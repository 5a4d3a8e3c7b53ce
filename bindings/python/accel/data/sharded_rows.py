# SPDX-License-Identifier: Apache-2.0
"""The rows that a rank has of the states of an optimizer, which have the shape of their parameters."""

import torch

from .. import capi
from ..state.job import current


def cut_states(optimizer):
    """Cuts states that were made with whole shapes, before the parameters were cut: by an optimizer that makes them when it is made, or that
    has stepped, or that was given the state of one that is not sharded. Collective."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    ranks = capi.accel_gather_object(current(), [[len(parameter) if parameter.dim() else 0 for parameter in parameters]])
    own = capi.accel_process_index(current())
    for number, parameter in enumerate(parameters):
        counts = [counts[number] for counts in ranks]
        states = optimizer.state.get(parameter, {})
        for name, value in states.items():
            if not torch.is_tensor(value) or value.dim() != parameter.dim() or value.dim() == 0 or len(value) in (0, len(parameter)):
                continue  # of another kind, or of the rows that this rank has
            if sum(counts) % len(value) == 0:
                first = sum(counts[:own]) % len(value)  # other ranks may have copies, in the same order
                states[name] = value[first:first + counts[own]].clone()
