"""With torch in the same process: tensors pass in both directions without a copy, whichever was imported first."""

import importlib.util
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="there is no torch")

EXCHANGE = """
import torch
mine, theirs = accel.ones(2, 3), torch.arange(4.0)
lent = torch.from_dlpack(mine)
assert lent.data_ptr() == mine.data_ptr()
lent[0, 0] = 5
assert mine[0, 0].item() == 5
assert accel.as_tensor(theirs).data_ptr() == accel.from_dlpack(theirs).data_ptr() == theirs.data_ptr()
assert (accel.ones(4) + theirs).tolist() == [1, 2, 3, 4]
assert accel.from_dlpack(torch.ones(2, dtype=torch.bfloat16)).dtype == "bfloat16"
"""


@pytest.mark.parametrize("first", ["import torch, accel", "import accel; accel.ones(1)"])
def test_exchange(first):
    done = subprocess.run([sys.executable, "-c", first + EXCHANGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
