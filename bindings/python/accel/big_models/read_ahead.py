# SPDX-License-Identifier: Apache-2.0
"""Files of weights are read before the modules that need them run."""

import resource

from .. import capi
from ..engine.bridge import from_torch

_WINDOW = 128 << 20  # bytes that are read ahead of the module that runs: more than a block of most models has

_FEW = 16  # pages from the disk in a pass that are not worth it


class ReadAhead:
    """Modules in the order in which they run, by their lists of mapped tensors. Each tells when it runs, and the engine reads what the next ones
    need meanwhile. To ask for what is in memory already costs a quarter of a forward on the CPU; so it is done in the first pass, and again
    once a pass without it had to wait for the disk, because memory is short."""

    def __init__(self, tensors):
        self._of_torch, self._tensors = tensors, [[from_torch(tensor) for tensor in of_module] for of_module in tensors]
        self._begins = [0]
        for of_module in tensors:
            self._begins.append(self._begins[-1] + sum(tensor.nbytes for tensor in of_module))
        self._place = self._end = 0
        self._passes, self._is_short, self._faults = 0, False, 0

    def __reduce__(self):
        return ReadAhead, (self._of_torch,)

    def reach(self, place):
        """The module at this place runs."""
        if place < self._place:
            self._begin_pass()
            self._end = place
        self._place, first = place, max(self._end, place)
        if self._passes and not self._is_short:
            return
        while self._end < len(self._tensors) and (self._end <= place or self._begins[self._end] - self._begins[place] < _WINDOW):
            self._end += 1
        ahead = [tensor for of_module in self._tensors[first:self._end] for tensor in of_module]
        if ahead:
            capi.accel_read_ahead(ahead)

    def _begin_pass(self):
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        self._is_short = self._is_short or self._passes > 0 and faults - self._faults > _FEW
        self._passes += 1
        self._faults = faults
