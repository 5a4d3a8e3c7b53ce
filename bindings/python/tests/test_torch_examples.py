# SPDX-License-Identifier: Apache-2.0
"""The examples of torch programs run, on two ranks."""

import importlib.util
import os
import pathlib
import re

import pytest

pytest.importorskip("torch")

from accel.state.environment import get_free_port as _free_port  # noqa: E402
from warm_start import OF_TORCH, WarmProcess  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python" / "torch"
NO_PROGRAMS = {"command_line", "tasks", "training"}
EXAMPLES = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in NO_PROGRAMS)


def run(example, ranks, folder, *arguments):
    """What rank 0 prints."""
    job = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()),
           "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    started = [WarmProcess(rank, OF_TORCH, [FOLDER / f"{example}.py", *arguments],
                           {**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)}, folder) for rank in range(ranks)]
    try:
        printed = [rank.communicate(timeout=120) for rank in started]
    finally:
        for rank in started:
            rank.kill()
    assert [rank.returncode for rank in started] == [0] * ranks, printed
    return printed[0][0]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_learns(example, tmp_path):
    if example == "schedule_free" and importlib.util.find_spec("schedulefree") is None:
        pytest.skip("needs the package schedulefree")
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)", run(example, 2, tmp_path, "--epochs", "3"))]
    assert losses and losses[-1] <= losses[0] + 0.1
    if example == "checkpointing":
        assert "continues behind 3 epochs" in run(example, 1, tmp_path, "--epochs", "4")
