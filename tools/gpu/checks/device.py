# SPDX-License-Identifier: Apache-2.0
"""The state is on the device, whose name, memory and capability are known."""

import importlib.util

import accel
from accel import capi
from result import DEVICE, figure, require

reason = capi.accel_unavailable_reason(DEVICE)
require(not reason, f"{DEVICE} cannot be used: {reason}")
device = accel.PartialState().device
require(str(device) == (DEVICE if DEVICE == "cpu" else f"{DEVICE}:0"), f"the state is on {device}")
properties = dict(capi.accel_device_properties(device)) if DEVICE != "cpu" else {}
capability = None
if DEVICE == "cuda" and importlib.util.find_spec("torch") is not None:
    import torch

    properties["card"] = torch.cuda.get_device_name(0)
    capability = ".".join(map(str, torch.cuda.get_device_capability(0)))
if DEVICE == "cuda":
    require(properties["total_memory"], "the device does not tell its memory")
figure("device", device=str(device), capability=capability, **properties)
