# SPDX-License-Identifier: Apache-2.0
"""A collective that was started with async_op=True and runs in the background."""

import time

from .. import capi

_SLICE_MS = 100  # Ctrl-C is handled between two waits, and the work continues


class Work:
    """The handle that `async_op=True` returns. `wait()` gives what the call without it would have given."""

    def __init__(self, handle, finish):
        self._handle, self._finish = handle, finish

    def done(self):
        """Whether it has ended, successfully or not."""
        return capi.accel_work_test(self._handle) == 1

    def wait(self, timeout=None):
        """The result, or the error. A TimeoutError after `timeout` seconds leaves the work going on."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE_MS if end is None else max(0, min(_SLICE_MS, int((end - time.monotonic()) * 1000)))
            if capi.accel_work_wait(self._handle, left) == capi.ACCEL_OK:
                return self.result()
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"the collective is still running after {timeout} s")

    def result(self):
        """The result of a work that has ended, or its error."""
        return self._finish(capi.accel_work_result(self._handle))

    def add_done_callback(self, function):
        """Calls function(work) once, in the wait() or progress() that first sees the end."""
        capi.accel_work_then(self._handle, lambda status: function(self))
