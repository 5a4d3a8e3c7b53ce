# SPDX-License-Identifier: Apache-2.0
"""The simulated accelerator in torch's Python, for programs of the tests that run in a process of their own."""

import contextlib
import os
import pathlib
import subprocess
import sys
import types

import pytest

DEVICE = "sim:0"
needs_device = pytest.mark.skipif("SIMULATED_DEVICE_LIBRARY" not in os.environ, reason="the build sets the path of the simulated device")


def register():
    """Loads the device, and gives torch the module `torch.sim`, which torch asks about the devices of this kind."""
    import torch

    import accel

    accel.capi.accel_device_parse(DEVICE)  # loads the plugin
    module = types.ModuleType("torch.sim")
    module.is_available = module.is_initialized = lambda: True
    module.device_count, module.current_device, module._lazy_init = lambda: 4, lambda: 0, lambda: None
    module.device = lambda device: contextlib.nullcontext()  # the programs use one device
    torch._register_device_module("sim", module)


def run(program, *arguments):
    """What a program prints, of this folder or with its path, which register() or the variable gives the device to."""
    environment = {**os.environ, "ACCEL_DEVICE_PLUGINS": os.environ["SIMULATED_DEVICE_LIBRARY"]}
    done = subprocess.run([sys.executable, str(pathlib.Path(__file__).parent / program), *arguments], env=environment, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
