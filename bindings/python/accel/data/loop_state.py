# SPDX-License-Identifier: Apache-2.0
"""The state of a loader's loops, for GradientState and the engine."""

from .. import capi
from ..state import process as state
from ..state.process import PartialState


class DataLoaderStateMixin:
    """Tells of its loops. Subclasses call begin(), and end() after the last batch.

    `end_of_dataloader`: whether the batch in hand is the last one. `remainder`: how many rows of all ranks' last batches are no
    repetition; 0 when all are, -1 when that is not known."""

    end_of_dataloader, remainder = False, -1
    repeating = None  # of a batch whose last rows are repetitions that the engine is not told of: its rows, and how many are none

    def reset(self):
        self.end_of_dataloader, self.remainder, self.repeating = False, -1, None

    def begin(self):
        """A loop over the loader begins: the innermost one. The engine's handle to it, None without a state."""
        self.reset()
        loop = capi.accel_loop_begin(state.current()) if PartialState.is_made() else None
        self.__dict__.setdefault("_loops", []).append(loop)
        state.begin_loop(self)
        self.remainder = self._known_remainder()
        return loop

    def end(self):
        """The innermost loop over the loader ends, if there is one."""
        if self.__dict__.get("_loops"):
            self._loops.pop()
        state.end_loop(self)

    def _known_remainder(self):
        try:
            return -1 if self._drop_last else self.total_dataset_length % self.total_batch_size
        except (AttributeError, TypeError):
            return -1  # a stream, or batches of any size

    def _report_batch(self, loop, rows, remainder, is_last, own=None):
        """Describes the batch that is handed out: the rows of each rank's, and if it is filled up how many of all are not repetitions. `own`: how
        many rows it has where not all of them are known."""
        self.end_of_dataloader = is_last
        self.repeating = None if own is None else (own, rows[PartialState().process_index if PartialState.is_made() else 0])
        if is_last and remainder is not None:
            self.remainder = remainder
        if loop is not None and any(known is loop for known in self._loops):  # end() may have ended it
            capi.accel_loop_set_batch(loop, rows, self.remainder, int(is_last))
