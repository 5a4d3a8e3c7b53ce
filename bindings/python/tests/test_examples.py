"""The programs of examples/python, in one process and in two: what they print is the same."""

import os
import subprocess
import sys

import pytest

from accel.launchers import _free_port
from conftest import ROOT

EXAMPLES = ROOT / "examples/python"


def run(name, num_processes, arguments=()):
    port = str(_free_port())
    ranks = []
    for rank in range(num_processes):
        job = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_processes), "LOCAL_WORLD_SIZE": str(num_processes),
               "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen([sys.executable, str(EXAMPLES / name), *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                                      stderr=subprocess.PIPE, env={**os.environ, **job}))
    printed = [rank.communicate(timeout=120) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), printed
    assert [out for out, _ in printed[1:]] == [""] * (num_processes - 1)
    return printed[0][0]


def test_hello():
    assert run("hello.py", 1) == "[0]\n" and run("hello.py", 3) == "[0,1,2]\n"


@pytest.fixture
def arguments(request, tmp_path):
    return {"train.py": [ROOT / "LICENSE"], "checkpoint.py": [tmp_path / "checkpoint"]}.get(request.param, [])


@pytest.mark.parametrize("name, arguments, last", [
    ("train.py", "train.py", "step"), ("foreign_module.py", "", "answers 0 1 1 0"),
    ("checkpoint.py", "checkpoint.py", "the same bit for bit"), ("embed.py", "", "collectives wait for all ranks")],
    indirect=["arguments"])
def test_programs(name, arguments, last):
    alone, together = run(name, 1, arguments), run(name, 2, arguments)
    assert alone == together and last in alone.splitlines()[-1]
    losses = [float(line.split()[-1]) for line in alone.splitlines() if line.startswith(("step", "first step"))]
    assert not losses or losses[-1] < losses[0]
