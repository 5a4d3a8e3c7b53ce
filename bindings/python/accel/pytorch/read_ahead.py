"""Files of weights are read before the modules that need them run."""

from .. import capi
from .bridge import from_torch

_WINDOW = 128 << 20  # bytes that are read ahead of the module that runs: more than a block of most models has


class ReadAhead:
    """Modules in the order in which they run, by their lists of mapped tensors. Each tells when it runs, and the engine reads what the next ones
    need meanwhile; in memory already, that costs next to nothing."""

    def __init__(self, tensors):
        self._tensors = [[from_torch(tensor) for tensor in of_module] for of_module in tensors]
        self._begins = [0]
        for of_module in tensors:
            self._begins.append(self._begins[-1] + sum(tensor.nbytes for tensor in of_module))
        self._place = self._end = 0

    def reach(self, place):
        """The module at this place runs."""
        if place < self._place:
            self._end = place  # the next pass
        self._place, first = place, max(self._end, place)
        while self._end < len(self._tensors) and (self._end <= place or self._begins[self._end] - self._begins[place] < _WINDOW):
            self._end += 1
        ahead = [tensor for of_module in self._tensors[first:self._end] for tensor in of_module]
        if ahead:
            capi.accel_read_ahead(ahead)
