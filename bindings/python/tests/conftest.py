# SPDX-License-Identifier: Apache-2.0
"""What the tests share: a state of its own for each test, and scripts in several ranks."""

import ast
import gc
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import warnings

import pytest

import accel
import accel.errors
from accel import capi
from accel.state.environment import get_free_port as _free_port
from warm_start import OF_ACCEL, OF_TORCH, OF_TRANSFORMERS, WarmProcess

ROOT = pathlib.Path(__file__).resolve().parents[3]


def pytest_configure(config):
    config.addinivalue_line("markers", "combinations: repeats on more cases what others of the same test prove")


@pytest.fixture(autouse=True, scope="module")
def modules_are_no_garbage():
    """Collections do not look at what the imports made: with torch half a million objects, for each test anew."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def leaves_nothing_behind():
    """Each test begins without a state, and ends without handles of its own."""
    accel.PartialState._reset_state()
    gc.collect()
    before = capi.accel_debug_live_objects()
    yield
    sys.last_value = sys.last_traceback = None
    accel.PartialState._reset_state()
    gc.collect()
    assert capi.accel_debug_live_objects() <= before, "handles are left"


def check_reached(script):
    """Lines with another indentation than those that they follow may have become the unreached end of a function."""
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.FunctionDef) and any(isinstance(statement, ast.Return) for statement in node.body[:-1]):
            raise AssertionError(f"lines of the script follow the return of {node.name}()")


class Ranks:
    """Starts scripts as the ranks of a job."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, text, num_processes=2, imports=None, **environment):
        """The processes of a script, of which nothing is read yet; with `imports` they are forked behind those."""
        script = self.folder / "script.py"
        script.write_text(textwrap.dedent(text))
        check_reached(script.read_text())
        job = {"WORLD_SIZE": num_processes, "LOCAL_WORLD_SIZE": num_processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port(),
               "OMP_NUM_THREADS": 1, **environment}
        environments = [{**os.environ, **{name: str(value) for name, value in {**job, "RANK": rank, "LOCAL_RANK": rank}.items()}}
                        for rank in range(num_processes)]
        if imports:
            return [WarmProcess(rank, imports, [script], own, self.folder) for rank, own in enumerate(environments)]
        return [subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                 env=own) for own in environments]

    def __call__(self, text, num_processes=2, **environment):
        """What each rank printed."""
        imports = OF_TRANSFORMERS if "transformers" in text else OF_TORCH if "torch" in sys.modules else OF_ACCEL
        ranks = self.start(text, num_processes, imports, **environment)
        printed = []
        try:
            for number, rank in enumerate(ranks):
                out, err = rank.communicate(timeout=120)
                assert rank.returncode == 0, f"rank {number}: {out}\n{err}"
                printed.append(out)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        return printed


@pytest.fixture
def ranks(tmp_path):
    return Ranks(tmp_path)


@pytest.fixture
def accelerator():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = accel.Accelerator(cpu=True)
    yield made
    made.free_memory()


@pytest.fixture(scope="session")
def launcher():
    """The program `accel`."""
    found = os.environ.get("ACCEL_PROGRAM") or shutil.which("accel")
    if not found:
        pytest.skip("the program accel is neither in ACCEL_PROGRAM nor in PATH")
    return found
