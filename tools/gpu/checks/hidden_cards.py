# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES that hides the card: asking for it is a typed error with a reason, and a state that may choose is on the CPU."""

import os
import subprocess
import sys

from result import DEVICE, require

ASKED = """
import accel
from accel import errors
try:
    print("made on", accel.PartialState().device)
except (errors.Error, ValueError, RuntimeError) as error:
    print(type(error).__name__, "says:", error)
"""
CHOOSING = "import accel; print(accel.PartialState().device)"


def run(script, **variables):
    kept = {name: value for name, value in os.environ.items() if name != "ACCELERATE_TORCH_DEVICE"}
    return subprocess.run([sys.executable, "-c", script], env={**kept, **variables}, capture_output=True, text=True, check=False)


for visible in ("", "99"):
    asked = run(ASKED, CUDA_VISIBLE_DEVICES=visible, ACCELERATE_TORCH_DEVICE=DEVICE)
    require(asked.returncode == 0 and " says: " in asked.stdout, f"CUDA_VISIBLE_DEVICES={visible!r}: {(asked.stdout + asked.stderr).strip()[-400:]}")
    print(f"CUDA_VISIBLE_DEVICES={visible!r}: {asked.stdout.strip()}")
    chose = run(CHOOSING, CUDA_VISIBLE_DEVICES=visible)
    require(chose.stdout.strip() == "cpu", f"CUDA_VISIBLE_DEVICES={visible!r}: {(chose.stdout + chose.stderr).strip()[-400:]}; expected the CPU")
