# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a call that waits for other ranks.

Python handles signals when its main thread runs Python again, which it does not while it waits in the engine. A thread of its own
receives them as they come, and ends a running wait: the call fails, and what comes out of it is KeyboardInterrupt.
"""

import os
import signal
import threading
import time

from .. import capi

PATIENCE = 0.5  # seconds for the call to end by itself, as most do; the groups of this process are given up then
_watcher = None


def watch():
    """Begins, where the program can have Ctrl-C: on the main thread."""
    global _watcher
    if _watcher is not None or threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    capi.watch_thread(threading.get_ident())
    _watcher = threading.Thread(target=_read_signals, args=(reader, former), name="accel-interrupts", daemon=True)
    _watcher.start()
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


def _read_signals(reader, former):
    while numbers := os.read(reader, 64):
        if former != -1:
            os.write(former, numbers)
        if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _end_wait()


def _end_wait():
    call, end = capi.waiting_call(), time.monotonic() + PATIENCE
    while call and capi.waiting_call() == call:
        if time.monotonic() > end:
            capi.accel_interrupt()
            return
        time.sleep(0.02)
