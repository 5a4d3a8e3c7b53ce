# SPDX-License-Identifier: Apache-2.0
"""A card that another process fills: what does not fit is OutOfMemoryError, what fits works, and so does all when the other one is gone.

filled_card.py, or as the other process: filled_card.py fill
"""

import os
import subprocess
import sys

import accel
from accel import capi, errors
from result import require

LEFT, BLOCK = 3 << 30, 256 << 20  # bytes


def fill():
    device = accel.PartialState().device
    taken = []
    while capi.accel_device_memory(device)["free"] > LEFT:
        taken.append(accel.zeros(BLOCK, dtype=accel.uint8, device=device))
    taken[-1].sum().item()
    print("filled", flush=True)
    sys.stdin.read()


def takes(device, size):
    """Whether so many bytes can be taken and written."""
    try:
        accel.zeros(size, dtype=accel.uint8, device=device)[-1:].sum().item()
        return True
    except errors.OutOfMemoryError as error:
        print("OutOfMemoryError:", str(error).splitlines()[0])
        return False


def main():
    device = accel.PartialState().device
    other = subprocess.Popen([sys.executable, __file__, "fill"], env=os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    require(other.stdout.readline() == "filled\n", "the other process could not fill the card")
    require(not takes(device, 2 * LEFT), f"{2 * LEFT} bytes were taken, and the other process leaves {LEFT}")
    require(takes(device, BLOCK), f"{BLOCK} bytes could not be taken, and the other process leaves {LEFT}")
    other.communicate()
    require(other.returncode == 0, f"the other process has status {other.returncode}")
    require(takes(device, 2 * LEFT), f"{2 * LEFT} bytes could not be taken after the other process ended")


fill() if sys.argv[1:] == ["fill"] else main()
