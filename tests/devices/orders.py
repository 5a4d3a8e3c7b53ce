# SPDX-License-Identifier: Apache-2.0
"""Orders of what a program does first, and a process of its own for each."""

import faulthandler
import itertools
import os
import signal
import tempfile
import traceback

SECONDS = 300  # of one process


def covering_orders(steps, length=3):
    """Few orders of all steps, in which any `length` of them come in any order."""
    orders, left = [], set(itertools.permutations(steps, length))
    while left:
        best = max(itertools.permutations(steps), key=lambda order: len(left.intersection(itertools.combinations(order, length))))
        left.difference_update(itertools.combinations(best, length))
        orders.append(best)
    return orders


def run_forked(work):
    """Calls work() in a copy of this process, which must have no threads. The exit status and what the copy printed."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(SECONDS)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                faulthandler.enable(2)
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return status, said.read()
