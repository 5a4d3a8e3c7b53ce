"""Which rows of a sharded parameter a rank has, and the states of an optimizer that have the shape of their parameters."""

import torch

from .. import capi
from ..engine.values import of_kind, to_engine
from ..state.job import current


class Rows:
    """Which rows of a parameter this rank has."""

    def __init__(self, counts, rank, total):
        self.total, self.is_sharded = total, any(count != total for count in counts)
        self.count = counts[rank]
        self.start = sum(counts[:rank]) % total if total else 0  # other ranks may have copies, in the same order

    def whole(self, value, parameter):
        """The whole tensor of a state that is shaped as the parameter. Collective."""
        if not self.is_sharded or not torch.is_tensor(value) or value.shape != parameter.shape:
            return value
        return of_kind(value, capi.accel_gather_uneven(current(), to_engine(value.detach())))[:self.total].cpu()

    def own(self, value):
        if not self.is_sharded or not torch.is_tensor(value) or value.dim() == 0 or len(value) != self.total:
            return value
        return value[self.start:self.start + self.count].clone()


def cut_states(optimizer):
    """Cuts states that were made with whole shapes, before the parameters were cut: by an optimizer that makes them when it is made, or that
    has stepped, or that was given the state of one that is not sharded. Collective."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    ranks = capi.accel_gather_object(current(), [[len(parameter) if parameter.dim() else 0 for parameter in parameters]])
    for number, parameter in enumerate(parameters):
        counts = [counts[number] for counts in ranks]
        states = optimizer.state.get(parameter, {})
        for name, value in states.items():
            if not torch.is_tensor(value) or value.dim() != parameter.dim() or value.dim() == 0 or len(value) in (0, len(parameter)):
                continue  # of another kind, or of the rows that this rank has
            if sum(counts) % len(value) == 0:
                states[name] = Rows(counts, capi.accel_process_index(current()), len(value)).own(value)
