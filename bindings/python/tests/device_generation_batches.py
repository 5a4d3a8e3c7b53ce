# SPDX-License-Identifier: Apache-2.0
"""Generation batches on a simulated accelerator, also with weights that are offloaded from it. Run by test_generation_batches.py in a process with
ACCEL_DEVICE_PLUGINS."""

import accel
from test_generation_batches import new_model, together

WANTED = [5, 7, 9, 3]
expected = together(new_model(), WANTED)
moved = new_model().to("sim:0")
assert next(iter(moved.parameters())).device == accel.Device("sim:0")
assert together(moved, WANTED) == expected
offloaded = accel.cpu_offload(new_model(), execution_device="sim:0")
assert together(offloaded, WANTED, max_sequences=2) == expected
print("equal")
