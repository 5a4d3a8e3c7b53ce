# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: writes the outcome of each test as a line `FILE::CLASS::TEST OUTCOME` to the file $ACCEL_PEER_OUTCOMES.

Each test starts from the same random numbers. Some compare two draws of weights by their sums, which agree once in about 1,000 runs.
"""

import os
import pathlib
import random

_RANK = ("passed", "skipped", "failed")
_outcomes: dict = {}


def pytest_configure():
    """The tests start scripts of their tool box, which are not in the package."""
    import accelerate.test_utils.testing as tools

    tools.path_in_accelerate_package = pathlib.Path(os.environ["ACCEL_PEER_SOURCE"], "src", "accelerate").joinpath


def pytest_runtest_setup():
    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def _name(node):
    """With the file's name in the place of a class for a function at the top of it."""
    path, *inside = node.split("::")
    file = pathlib.Path(path).stem
    return "::".join([file, *([file] if len(inside) == 1 else []), *inside])


def pytest_runtest_logreport(report):
    outcome = report.outcome
    former = _outcomes.get(_name(report.nodeid), "passed")
    _outcomes[_name(report.nodeid)] = max(former, outcome, key=_RANK.index)


def pytest_sessionfinish():
    lines = [f"{name} {outcome}\n" for name, outcome in sorted(_outcomes.items())]
    pathlib.Path(os.environ["ACCEL_PEER_OUTCOMES"]).write_text("".join(lines))
