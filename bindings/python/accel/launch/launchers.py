# SPDX-License-Identifier: Apache-2.0
"""Starts a function in several processes, from a script or a notebook. From a shell: `accel launch --num-processes 2 script.py`."""

import functools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import secrets
import string
import sys
import time
import traceback

from ..engine import libtorch
from ..state import machine
from ..generated.enums import DistributedType, PrecisionType
from ..state.environment import get_free_port

_PATIENCE = 0.5  # seconds that ranks have to end by themselves when another one has failed
_GRACE = 1  # and that they have after they were told to
_STATE_IS_MADE = ("this process has made an Accelerator or a PartialState, whose threads and connections do not exist in the new processes: "
                  "restart the notebook, and make them in the function only{}")


def test_launch():
    """A rank that only meets the others."""
    from ..state.process import PartialState

    PartialState().wait_for_everyone()


class PrepareForLaunch:
    """A function as the process of a rank calls it, with its number on this machine: it tells the environment the rank first."""

    def __init__(self, launcher, distributed_type="NO", debug=False):
        self.launcher, self.distributed_type, self.debug = launcher, DistributedType(distributed_type), debug

    def __call__(self, index, *args):
        if self.debug or self.distributed_type.name.startswith("MULTI_"):
            first = int(os.environ.get("NPROC", 1)) * int(os.environ.get("NODE_RANK", 0))
            os.environ.update(LOCAL_RANK=str(index), RANK=str(first + index))
        os.environ["FORK_LAUNCHED"] = "1"
        self.launcher(*args)


class _Prefixed:
    """A stream that begins each line with a prefix. A line is written as a whole, so that nothing of other ranks comes between."""

    def __init__(self, stream, prefix):
        self._stream, self._prefix, self._at_start, self._begun = stream, prefix, True, ""

    def write(self, text):
        *lines, self._begun = (self._begun + text).split("\n")
        if lines:
            self._write("".join(f"{line}\n" for line in lines))
        return len(text)

    def _write(self, text):
        lines = text.splitlines(keepends=True)
        self._stream.write(("" if self._at_start else lines.pop(0)) + "".join(self._prefix + line for line in lines))
        self._at_start = text.endswith("\n")

    def flush(self):
        if self._begun:
            self._write(self._begun)
            self._begun = ""
        self._stream.flush()

    def __getattr__(self, name):
        return getattr(self._stream, name)


def _run(function, args, index, environment, prefix, reports, all_are_done):
    """The process of a rank. It stays until all are done: rank 0 has the store, which others may still need."""
    os.environ.update(environment)
    rank, launcher = int(environment["RANK"]), os.getppid()
    try:
        if libtorch.is_loaded():
            from .. import capi

            capi.accel_accept_fork()
        if prefix is not None:
            prefix = string.Template(prefix).safe_substitute(role_name="default", rank=rank, local_rank=index)
            sys.stdout, sys.stderr = _Prefixed(sys.stdout, prefix), _Prefixed(sys.stderr, prefix)
        PrepareForLaunch(function, "MULTI_CPU")(index, *args)
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            reports.put((rank, f"{type(error).__name__}: {error}", traceback.format_exc()))
            sys.exit(1)
    reports.put((rank, None, ""))
    while not all_are_done.wait(1) and os.getppid() == launcher:
        pass


def _end(ranks):
    """Ends the processes that still run."""
    started = [rank for rank in ranks if rank.pid is not None]
    until = time.monotonic() + _PATIENCE
    for rank in started:
        rank.join(max(0, until - time.monotonic()))
    for rank in started:
        if rank.is_alive():
            rank.terminate()
    until = time.monotonic() + _GRACE
    for rank in started:
        rank.join(max(0, until - time.monotonic()))
        if rank.is_alive():
            rank.kill()
            rank.join()


def _start(ranks, function):
    try:
        for rank in ranks:
            rank.start()
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise RuntimeError(_STATE_IS_MADE.format(f", or put {function!r} into a module")) from error


def _is_of_main(function):
    """Whether a function is one of the script or notebook, which a new interpreter would have to run once more to get it."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__module__", None) == "__main__"


def _start_method(function):
    """Copies of this process, unless its engine has had a job: then new ones, which import the function."""
    state = sys.modules.get("accel.state.job")
    if state is None or not state.was_made():
        if libtorch.is_loaded() or "torch" in sys.modules:
            from .. import capi

            capi.accel_prepare_fork()
        return "fork"
    if state.is_made():
        raise ValueError(_STATE_IS_MADE.format(""))
    if _is_of_main(function):
        raise RuntimeError(_STATE_IS_MADE.format(f", or put {function!r} into a module"))
    return "spawn"


def _attempt(function, args, method, environments, monitor_interval, prefix):
    """Runs the ranks once; returns (rank, what, trace) of one that has failed, or None."""
    context = multiprocessing.get_context(method)
    reports, all_are_done = context.SimpleQueue(), context.Event()
    ranks = [context.Process(target=_run, name=environment["RANK"], args=(function, args, index, environment, prefix, reports, all_are_done))
             for index, environment in enumerate(environments)]
    done = set()
    try:
        _start(ranks, function)
        while len(done) < len(ranks):
            multiprocessing.connection.wait([*(rank.sentinel for rank in ranks), reports._reader], timeout=monitor_interval)
            # Of several the one that was killed comes first, since the others may have missed it.
            ended = sorted((rank.exitcode, int(rank.name)) for rank in ranks if rank.exitcode is not None)
            if ended and ended[0][0] < 0:
                return ended[0][1], f"ended with signal {-ended[0][0]}", ""
            while not reports.empty():
                rank, what, trace = reports.get()
                if what is not None:
                    return rank, what, trace
                done.add(rank)
            for status, rank in ended:
                if rank not in done:
                    return rank, f"ended with exit status {status}", ""
        all_are_done.set()
        for rank in ranks:
            rank.join()
        return None
    finally:  # also after Ctrl-C, or the notebook's stop
        all_are_done.set()
        _end(ranks)


def _launch(function, args, num_processes, num_nodes=1, node_rank=0, max_restarts=0, monitor_interval=0.1, prefix=None, **environment):
    method, world_size = _start_method(function), num_processes * num_nodes
    for restart in range(max_restarts + 1):
        common = {"NPROC": num_processes, "NODE_RANK": node_rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": num_processes,
                  "TORCHELASTIC_RESTART_COUNT": restart, "ACCEL_RESTART_COUNT": restart,
                  "ACCEL_JOB_TOKEN": secrets.token_hex(16), **environment}
        if common.get("MASTER_PORT") is None:
            common["MASTER_PORT"] = get_free_port()
        environments = [{name: str(value) for name, value in {**common, "LOCAL_RANK": index, "RANK": node_rank * num_processes + index}.items()}
                        for index in range(num_processes)]
        failure = _attempt(function, args, method, environments, monitor_interval, prefix)
        if failure is None:
            return
    rank, what, trace = failure
    after = f", after {max_restarts} restarts" if max_restarts else ""
    raise _error_class()(f"rank {rank}: {what}{after}\n{trace}")


def _error_class():
    """RuntimeError; in a program that has imported torch's launcher also its error, which code written for Accelerate expects."""
    elastic = sys.modules.get("torch.distributed.elastic.multiprocessing.errors")
    if elastic is None:
        return RuntimeError

    class FailedRankError(RuntimeError, elastic.ChildFailedError):
        __init__, __str__ = RuntimeError.__init__, RuntimeError.__str__

    return FailedRankError


def _check_libraries():
    """Devices that are in use cannot be used by copies of this process."""
    early = machine.are_libraries_initialized("bitsandbytes")
    if early:
        raise RuntimeError(f"{', '.join(early)} is imported, which begins to use the device: no process that is started now could use it. "
                           "Please keep these imports inside your training function")
    torch = sys.modules.get("torch")
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_initialized():
            raise RuntimeError(f"{kind.upper()} has been initialized in this process, and cannot be used by one that is forked off: restart the "
                               "notebook, and use the device inside the function only; an import may have used it too")


def _rendezvous(backend, endpoint, conf, run_id, master_addr, port):
    """(address, port, more variables): where and by which name the ranks meet."""
    if backend not in ("static", "c10d"):
        raise ValueError(f"rdzv_backend={backend!r}: expected 'static' or 'c10d', which both meet at the address of rank 0")
    if endpoint:
        host, _, number = endpoint.rpartition(":")
        master_addr, port = (host, number) if host else (endpoint, port)
    variables = {} if run_id in (None, "none", "") else {"ACCEL_JOB_TOKEN": run_id}
    for name, value in (conf or {}).items():
        if name in ("timeout", "join_timeout", "read_timeout"):
            variables["ACCEL_TIMEOUT_MS"] = int(float(value) * 1000)
        elif name != "rank":
            raise ValueError(f"rdzv_conf has {name!r}: expected timeout, join_timeout or read_timeout, in seconds")
    return master_addr, port, variables


def _is_colab():
    return "google.colab" in str(getattr(sys.modules.get("IPython"), "get_ipython", str)())


def notebook_launcher(function, args=(), num_processes=None, mixed_precision="no", use_port=None, master_addr="127.0.0.1", node_rank=0,
                      num_nodes=1, rdzv_backend="static", rdzv_endpoint="", rdzv_conf=None, rdzv_id="none", max_restarts=0,
                      monitor_interval=0.1, log_line_prefix_template=None):
    """Calls function(*args) in `num_processes` processes of each of `num_nodes` hosts, each a rank, and waits.

    The processes are copies of this one, so the function may be one of the notebook; Accelerator and PartialState are made inside of it only.
    `use_port` None is a free port; with several hosts 29500. After a failure all ranks are started again, up to `max_restarts` times.
    """
    if str(mixed_precision).lower() not in PrecisionType:
        raise ValueError(f"Unknown mixed_precision mode: {mixed_precision}. Choose between {PrecisionType.list()}.")
    if num_processes is None and _is_colab():
        num_processes = 1
    if num_processes is None:
        raise ValueError("You have to specify the number of devices you would like to use, add `num_processes=...` to your call.")
    if node_rank >= num_nodes:
        raise ValueError(f"node_rank={node_rank}: The node_rank must be less than the number of nodes, {num_nodes}.")
    if num_processes * num_nodes == 1:
        return function(*args)
    _check_libraries()
    port = use_port or (29500 if num_nodes > 1 else None)
    master_addr, port, variables = _rendezvous(rdzv_backend, rdzv_endpoint, rdzv_conf, rdzv_id, master_addr, port)
    if num_nodes > 1:
        variables.setdefault("ACCEL_JOB_TOKEN", os.environ.get("ACCEL_JOB_TOKEN", ""))
    if not machine.check_cuda_p2p_ib_support():
        variables.update(NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1)
    settings = {"num_nodes": num_nodes, "node_rank": node_rank, "monitor_interval": monitor_interval, "prefix": log_line_prefix_template,
                "MASTER_ADDR": master_addr, "MASTER_PORT": port, "ACCELERATE_MIXED_PRECISION": str(mixed_precision).lower(), **variables}
    if os.environ.get("ACCELERATE_DEBUG_MODE", "false").lower() == "true":
        try:
            _launch(test_launch, (), num_processes, **settings)
        except RuntimeError as error:
            raise RuntimeError(f"An issue was found when verifying a stable environment for the notebook launcher: {error}") from error
    return _launch(function, args, num_processes, max_restarts=max_restarts, **settings)


def debug_launcher(function, args=(), num_processes=2):
    """Calls function(*args) in processes on the CPU, for tests."""
    _launch(function, args, num_processes, MASTER_ADDR="127.0.0.1", ACCELERATE_MIXED_PRECISION="no", ACCELERATE_USE_CPU="1")
