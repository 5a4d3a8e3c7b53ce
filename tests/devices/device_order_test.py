#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A device is whole in whatever order a program seeds, computes on the CPU, imports torch and makes its first state: device_order_test.py DEVICE [unittest argument ...].

DEVICE is a kind: sim (the simulated one, whose library ACCEL_DEVICE_PLUGINS names, and which each program here loads by itself: by the variable
or by the option), cuda. Each program is a copy of this process, which has not imported accel: libaccel works in no copy of a process that used it.
"""

import importlib.util
import itertools
import os
import subprocess
import sys
import unittest

import orders

KIND, PLUGIN = "sim", ""
LENGTH = int(os.environ.get("ACCEL_TEST_ORDERS", "3"))  # so many steps come in any order


def pin(accel):
    try:
        accel.ones(2).pin_memory()
    except accel.errors.Error:  # of which a device without its library has none
        pass


def import_torch(_):
    import torch  # noqa: F401


def backward_of_torch(_):
    import torch

    torch.ones(2, requires_grad=True).sum().backward()


STEPS = {
    "seed": lambda accel: accel.set_seed(7),
    "generator": lambda accel: accel.Generator().manual_seed(7),
    "backward": lambda accel: accel.nn.Linear(4, 4)(accel.ones(2, 4)).sum().backward(),  # on the CPU
    "pin": pin,
    "state": lambda accel, **options: accel.Accelerator(**options),
}
STEPS_OF_TORCH = {"torch": import_torch, "torch's backward": backward_of_torch}


def draw(accel, accelerator):
    print(accel.rand(4, device=accelerator.device).to("cpu").tolist())


def train(accel, accelerator):
    """A model of ones, whose loss and gradients are known."""
    model = accel.nn.Linear(8, 1)
    with accel.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1)
    model = accelerator.prepare(model)
    loss = model(accel.full([2, 8], 0.5, device=accelerator.device)).sum()
    accelerator.backward(loss)
    gradients = [parameter.grad for parameter in model.parameters()]
    assert {loss.device.type, *(gradient.device.type for gradient in gradients)} == {KIND}, "what is computed is not on the device"
    assert loss.item() == 10 and [gradient.flatten().tolist() for gradient in gradients] == [[1.0] * 8, [2.0]], "what is computed is wrong"


class DeviceOrder(unittest.TestCase):
    def said(self, steps, end, **options):
        """What the program printed that takes these steps, then computes on its device. The state's options; else the variable names the plugin."""

        def program():
            if PLUGIN and not options:
                os.environ["ACCEL_DEVICE_PLUGINS"] = PLUGIN
            import accel

            for step in steps:
                (STEPS | STEPS_OF_TORCH)[step](accel, **(options if step == "state" else {}))
            accelerator = accel.Accelerator()
            assert str(accelerator.device) == f"{KIND}:0", f"the state is on {accelerator.device}"
            end(accel, accelerator)

        status, said = orders.run_forked(program)
        self.assertEqual(status, 0, f"{steps}: {said}")
        return said

    # Regression: a plugin of a device whose state came after a first backward had no thread of autograd: its first backward
    # failed inside of LibTorch.
    def test_each_order_by_the_variable(self):
        for order in orders.covering_orders(STEPS, LENGTH):
            with self.subTest(order):
                self.said(order, train)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no torch")
    def test_each_order_with_torch(self):
        for order in orders.covering_orders([*STEPS, *STEPS_OF_TORCH], LENGTH):
            with self.subTest(order):
                self.said(order, train)

    # Regression: a seed that was set before the device was there was not the device's.
    def test_a_seed_before_the_device_is_that_of_the_device(self):
        late = self.said(("state", "seed"), draw)
        self.assertIn("[0.", late)
        self.assertEqual(self.said(("seed", "state"), draw), late)
        if PLUGIN:
            for order in (("seed", "state"), ("state", "seed")):
                self.assertEqual(self.said(order, draw, device_plugins=PLUGIN), late)

    def test_a_plugin_after_the_first_backward(self):
        """LibTorch has started the threads for its devices then, of which there was none."""
        if not PLUGIN:
            self.skipTest("only the simulated device is a plugin")
        self.said(("backward", "state"), train, device_plugins=PLUGIN)


class Orders(unittest.TestCase):
    def test_any_three_come_in_any_order(self):
        steps = "abcdef"
        covered = {three for order in orders.covering_orders(steps) for three in itertools.combinations(order, 3)}
        self.assertEqual(covered, set(itertools.permutations(steps, 3)))

    def test_a_program_that_fails_says_why(self):
        status, said = orders.run_forked(lambda: print(1 // 0))
        self.assertEqual(status, 1)
        self.assertIn("ZeroDivisionError", said)


if __name__ == "__main__":
    KIND = sys.argv[1]
    # Asked in another process, since the question loads the device's library.
    asked = subprocess.run([sys.executable, "-c", f"import tested_device; tested_device.skip_without({KIND!r})"],
                           env={**os.environ, "PYTHONPATH": os.pathsep.join((os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")))}, check=False)
    if asked.returncode != 0:
        sys.exit(asked.returncode)
    PLUGIN = os.environ.pop("ACCEL_DEVICE_PLUGINS", "")
    for chosen in ("ACCELERATE_USE_CPU", "ACCELERATE_TORCH_DEVICE"):  # the state finds the device
        os.environ.pop(chosen, None)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
