# SPDX-License-Identifier: Apache-2.0
"""Launchers of functions: their checks, restarts, endings, and what the ranks are told."""

import json
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

import accel
from accel.state.environment import get_free_port
from accel.launchers import PrepareForLaunch, _Prefixed


def run(text, **environment):
    """What a script prints; its functions are started in other processes, whose lines are written whole only with a buffer."""
    settings = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1", "PYTHONUNBUFFERED": "", **environment}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("settings", "error", "text"), [
    ({}, ValueError, "num_processes"),
    ({"num_processes": 2, "node_rank": 2, "num_nodes": 2}, ValueError, "node_rank must be less"),
    ({"num_processes": 2, "mixed_precision": "fp17"}, ValueError, "Unknown mixed_precision mode: fp17"),
    ({"num_processes": 2, "rdzv_backend": "etcd"}, ValueError, "expected 'static' or 'c10d'"),
    ({"num_processes": 2, "rdzv_conf": {"colour": 1}}, ValueError, "rdzv_conf has 'colour'"),
])
def test_wrong_settings_start_nothing(settings, error, text):
    with pytest.raises(error, match=text):
        accel.notebook_launcher(lambda: pytest.fail("called"), **settings)


def test_a_free_port_is_given_to_nobody_else():
    state = random.getstate()
    ports = [get_free_port() for _ in range(64)]
    first_ephemeral = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == len(ports)
    program = "from accel.state.environment import get_free_port; print([get_free_port() for _ in range(64)])"
    others = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert set(json.loads(others)).isdisjoint(ports)
    assert max(ports) < first_ephemeral
    assert random.getstate() == state


def test_devices_in_use_are_no_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", object())
    with pytest.raises(RuntimeError, match="Please keep these imports"):
        accel.notebook_launcher(print, num_processes=2)
    monkeypatch.delitem(sys.modules, "bitsandbytes")

    class Torch:
        class cuda:
            is_initialized = staticmethod(lambda: True)

    monkeypatch.setitem(sys.modules, "torch", Torch)
    with pytest.raises(RuntimeError, match="CUDA has been initialized"):
        accel.notebook_launcher(print, num_processes=2)


def test_one_process_is_this_one():
    assert accel.notebook_launcher(os.getpid, num_processes=1) == os.getpid()


def test_prepare_for_launch(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "FORK_LAUNCHED"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("NPROC", "4")
    monkeypatch.setenv("NODE_RANK", "2")
    seen = []
    PrepareForLaunch(seen.append, "MULTI_CPU")(3, "argument")
    assert seen == ["argument"] and [os.environ[name] for name in ("RANK", "LOCAL_RANK", "FORK_LAUNCHED")] == ["11", "3", "1"]
    monkeypatch.setenv("RANK", "kept")
    PrepareForLaunch(seen.append)(1, "again")
    assert os.environ["RANK"] == "kept"


TELL = """
import json, os, accel
def tell():
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ACCELERATE_MIXED_PRECISION", "FORK_LAUNCHED",
             "ACCEL_TIMEOUT_MS", "ACCEL_JOB_TOKEN")
    os.write(1, (json.dumps({name: os.environ.get(name) for name in names}) + "\\n").encode())
accel.notebook_launcher(tell, num_processes=2, num_nodes=3, node_rank=1, mixed_precision="BF16", master_addr="10.0.0.1", rdzv_id="mine",
                        rdzv_conf={"rank": 1, "timeout": 1.5})
"""


def test_the_ranks_of_a_host_know_their_place():
    ranks = sorted(map(json.loads, run(TELL).splitlines()), key=lambda told: told["RANK"])
    common = {"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "ACCELERATE_MIXED_PRECISION": "bf16",
              "FORK_LAUNCHED": "1", "ACCEL_TIMEOUT_MS": "1500", "ACCEL_JOB_TOKEN": "mine"}
    assert ranks == [{"RANK": "2", "LOCAL_RANK": "0", **common}, {"RANK": "3", "LOCAL_RANK": "1", **common}]


RESTART = """
import os, signal, sys, time, accel
def fail(folder, how, succeeds_at):
    restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if os.environ["RANK"] == "0":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(f"{folder}/{os.environ['RANK']}.{restart}", "w").close()
    if restart == succeeds_at:
        return
    if os.environ["RANK"] == "0":
        time.sleep(60)
    while not os.path.exists(f"{folder}/0.{restart}"):
        time.sleep(0.01)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(3)
    raise KeyError("mine")
try:
    accel.notebook_launcher(fail, (sys.argv[1], sys.argv[2], int(sys.argv[3])), num_processes=2, max_restarts=1, monitor_interval=0.01)
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.parametrize(("how", "text"), [("raise", "rank 1: KeyError: 'mine', after 1 restarts"), ("exit", "rank 1: SystemExit: 3, after 1 restarts"),
                                           ("kill", "rank 1: ended with signal 9, after 1 restarts")])
# Regression: `notebook_launcher()` named a rank that it had ended itself.
def test_failed_ranks_end_the_others_and_are_started_again(tmp_path, how, text):
    begin = time.monotonic()
    script = tmp_path / "script.py"
    script.write_text(RESTART)
    for succeeds_at, printed, attempts in ((9, [text], "01"), (1, [], "01"), (0, [], "0")):
        folder = tmp_path / str(succeeds_at)
        folder.mkdir()
        done = subprocess.run([sys.executable, script, folder, how, str(succeeds_at)], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0 and done.stdout.splitlines() == printed, done.stderr
        assert {path.name for path in folder.iterdir()} == {f"{rank}.{attempt}" for rank in "01" for attempt in attempts}
    assert time.monotonic() - begin < 50


# Regression: with unbuffered output, lines of the ranks of `notebook_launcher()` with a prefix came apart: one rank's end of a
# line stood behind another's.
def test_a_line_with_a_prefix_is_written_as_a_whole():
    class Stream:
        def __init__(self):
            self.writes = []

        def write(self, text):
            self.writes.append(text)

        def flush(self):
            self.writes.append(None)

    stream = Stream()
    prefixed = _Prefixed(stream, "> ")
    print("one\ntwo", file=prefixed, flush=True)
    print("thr", end="", file=prefixed, flush=True)
    print("ee\n\nfour", file=prefixed)
    assert stream.writes == ["> one\n", "> two\n", None, "> thr", None, "ee\n> \n", "> four\n"]


def test_lines_have_a_prefix():
    printed = run("""
import accel
def say():
    print("one\\ntwo", flush=True)
accel.notebook_launcher(say, num_processes=2, log_line_prefix_template="[${role_name}${local_rank}|${rank}]: ")
""")
    assert sorted(printed.splitlines()) == [f"[default{rank}|{rank}]: {line}" for rank in (0, 1) for line in ("one", "two")]


def test_debug_mode_tries_the_machine_first():
    printed = run("""
import accel
def say():
    state = accel.PartialState()
    state.wait_for_everyone()
    state.print("trained", flush=True)
accel.notebook_launcher(say, num_processes=2)
""", ACCELERATE_DEBUG_MODE="true")
    assert printed == "trained\n"


def test_the_error_is_that_of_torch_too_where_it_is_loaded():
    pytest.importorskip("torch")
    printed = run("""
import accel
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
def fail():
    raise KeyError("mine")
try:
    accel.debug_launcher(fail)
except ChildFailedError as error:
    print(isinstance(error, RuntimeError), "KeyError: 'mine'" in str(error))
""")
    assert printed == "True True\n"


def test_raw_launch():
    """The functions of the header, in a process with one thread."""
    printed = run("""
import os
from accel import capi
options = capi.accel_launch_options_t()
options.num_processes = 2
reader, writer = os.pipe()
def work(local_process_index):
    if local_process_index == 1:
        os.read(reader, 1)  # what fails ends the other
        raise KeyError("mine")
    print("rank 0", flush=True)
    os.write(writer, b"1")
try:
    capi.accel_launch(options, work)
except capi.Error as error:
    print("rank 1 of 2 failed" in str(error), "KeyError" in str(error))
""")
    assert printed == "rank 0\nTrue True\n"


def test_threads_of_computations_are_no_obstacle():
    printed = run("""
import os
import accel
def product():
    return (accel.ones(1000, 1000) @ accel.ones(1000, 1000)).sum().item()
threads = len(os.listdir("/proc/self/task"))
assert product() == 1e9 and len(os.listdir("/proc/self/task")) > threads
def work():
    assert product() == 1e9
    print("good", flush=True)
accel.notebook_launcher(work, num_processes=2)
""", OMP_NUM_THREADS="2")
    assert printed == "good\ngood\n"


# Regression: ranks of `notebook_launcher()` lost the store when rank 0 ended right after it had joined.
def test_ranks_stay_until_all_are_done():
    """The store of rank 0 is there until all have joined."""
    run("import accel\nfor _ in range(4):\n    accel.notebook_launcher(lambda: accel.PartialState(), num_processes=2)\n")
