# SPDX-License-Identifier: Apache-2.0
"""A sample of the random programs with models of torch: sharded ones, and trainings that are killed in their saves. tools/long_tests.py runs
thousands."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def run(script, *arguments):
    result = subprocess.run([sys.executable, PROGRAMS / script, *arguments], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_sharded_programs(launcher, monkeypatch):
    monkeypatch.setenv("ACCEL_TORCH_PYTHON", sys.executable)
    name = "test_two_ranks_that_shard_models_of_torch_and_resume"
    assert f"{name}: " in run("programs_agree.py", launcher, "20", f"Programs.{name}")


def test_lives_of_trainings():
    assert "4 trainings with torch agree" in run("checkpoint_lives.py", "--with", "torch", "--count", "4")
