#!/usr/bin/env python3
"""A device is whole in whatever order a program seeds, runs a first backward on the CPU and makes its first state: device_order_test.py [unittest argument ...].

$ACCEL_DEVICE_PLUGINS names the simulated device's library, which each program here loads by itself: by the variable or by the option.
"""

import itertools
import os
import subprocess
import sys
import textwrap
import unittest

PLUGIN = os.environ["ACCEL_DEVICE_PLUGINS"]
STEPS = {
    "seed": "accel.set_seed(7)",
    "backward": "nn.Linear(4, 4)(accel.ones(2, 4)).sum().backward()",
    "state": "Accelerator(**options)",
}


def program(steps, options, end):
    lines = ["import accel", "from accel import Accelerator, nn", f"options = {options!r}", *(STEPS[step] for step in steps), "accelerator = Accelerator()",
             "device = accelerator.device", textwrap.dedent(end)]
    return "\n".join(lines)


def run(code, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in ("ACCEL_DEVICE_PLUGINS", "ACCELERATE_USE_CPU")}
    return subprocess.run([sys.executable, "-c", code], env={**environment, **variables}, capture_output=True, text=True, timeout=100, check=False)


TRAIN = """
model = accelerator.prepare(nn.Linear(8, 8))
loss = model(accel.ones(2, 8, device=device)).sum()
accelerator.backward(loss)
print(device.type, [p.grad.device.type for p in model.parameters()])
"""
DRAW = "print(device.type, accel.rand(4, device=device).to('cpu').tolist())"


class DeviceOrder(unittest.TestCase):
    def output(self, code, **variables):
        done = run(code, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    # Regression: a plugin of a device whose state came after a first backward had no thread of autograd: its first backward
    # failed inside of LibTorch.
    def test_each_order_by_the_variable(self):
        for steps in itertools.permutations(STEPS):
            with self.subTest(steps):
                self.assertEqual(self.output(program(steps, {}, TRAIN), ACCEL_DEVICE_PLUGINS=PLUGIN), "sim ['sim', 'sim']\n")

    # Regression: a seed that was set before the device was there was not the device's.
    def test_a_seed_before_the_device_is_that_of_the_device(self):
        late = self.output(program(["state", "seed"], {}, DRAW), ACCEL_DEVICE_PLUGINS=PLUGIN)
        self.assertIn("sim [", late)
        self.assertEqual(self.output(program(["seed", "state"], {}, DRAW), ACCEL_DEVICE_PLUGINS=PLUGIN), late)
        self.assertEqual(self.output(program(["seed", "state"], {"device_plugins": PLUGIN}, DRAW)), late)
        self.assertEqual(self.output(program(["state", "seed"], {"device_plugins": PLUGIN}, DRAW)), late)

    def test_a_plugin_after_the_first_backward(self):
        """LibTorch has started the threads for its devices then, of which there was none."""
        self.assertEqual(self.output(program(["backward", "state"], {"device_plugins": PLUGIN}, TRAIN)), "sim ['sim', 'sim']\n")


if __name__ == "__main__":
    unittest.main()
