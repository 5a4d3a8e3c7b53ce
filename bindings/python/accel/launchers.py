"""Starts a function in several processes, from a script or a notebook. From a shell: `accel launch --num-processes 2 -- python ...`."""

import functools
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
import traceback

from . import libtorch
from .names import resolver


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _run(function, args, environment, failures):
    os.environ.update(environment)
    try:
        function(*args)
    except BaseException as error:
        failures.put((int(environment["RANK"]), f"{type(error).__name__}: {error}", traceback.format_exc()))
        sys.exit(1)


def _end(ranks, patience):
    """Waits for the processes, without a limit if there is no patience, and ends those that still run."""
    for rank in ranks:
        if rank.pid is None:  # it has not started
            continue
        rank.join(patience)
        if rank.is_alive():
            os.kill(rank.pid, signal.SIGTERM)
            rank.join()


_ENGINE_IS_LOADED = ("the engine is loaded in this process already, and new ones cannot import {!r}: restart the notebook, and import and use "
                     "accel inside the function only, or put the function into a module")


def _is_of_main(function):
    """Whether a function is one of the script or notebook, which a new process would have to run once more to get it."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__module__", None) == "__main__"


def _start(ranks, function):
    if libtorch.is_loaded() and _is_of_main(function):
        raise RuntimeError(_ENGINE_IS_LOADED.format(function))
    try:
        for rank in ranks:
            rank.start()
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise RuntimeError(_ENGINE_IS_LOADED.format(function)) from error


def notebook_launcher(function, args=(), num_processes=None, mixed_precision="no", use_port=None, master_addr="127.0.0.1", node_rank=0,
                      num_nodes=1, **environment):
    """Calls function(*args) in `num_processes` processes of this host, each a rank, and waits. The function may be one of the notebook,
    unless the engine is loaded before, by the import of Accelerator or whatever else uses it: then the processes import the function
    themselves, so that it must be one of a module."""
    num_processes = num_processes or os.cpu_count() or 1
    port = str(use_port or _free_port())
    if num_processes * num_nodes == 1:
        return function(*args)
    context = multiprocessing.get_context("spawn" if libtorch.is_loaded() else "fork")  # a fork could not use the engine
    failures, ranks = context.SimpleQueue(), []
    for local in range(num_processes):
        settings = {"RANK": node_rank * num_processes + local, "LOCAL_RANK": local, "WORLD_SIZE": num_processes * num_nodes,
                    "LOCAL_WORLD_SIZE": num_processes, "MASTER_ADDR": master_addr, "MASTER_PORT": port,
                    "ACCELERATE_MIXED_PRECISION": mixed_precision, "FORK_LAUNCHED": 1, **environment}
        settings = {name: str(value) for name, value in settings.items()}
        ranks.append(context.Process(target=_run, args=(function, args, settings, failures)))
    try:
        _start(ranks, function)
        while any(rank.is_alive() for rank in ranks) and failures.empty():
            time.sleep(0.02)
    except BaseException:  # Ctrl-C, or the notebook's stop
        _end(ranks, 0)
        raise
    told = [] if failures.empty() else [failures.get()]
    _end(ranks, 0.5 if told else None)
    if told or any(rank.exitcode for rank in ranks):
        number, what, trace = told[0] if told else next((place, f"ended with {rank.exitcode}", "") for place, rank in enumerate(ranks)
                                                        if rank.exitcode)
        raise RuntimeError(f"rank {number}: {what}\n{trace}")
    return None


def debug_launcher(function, args=(), num_processes=2):
    """notebook_launcher() on the CPU, for tests."""
    notebook_launcher(function, args, num_processes, ACCELERATE_USE_CPU="1")


__getattr__ = resolver(__name__)
