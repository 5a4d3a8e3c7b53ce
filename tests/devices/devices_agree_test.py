#!/usr/bin/env python3
"""Programs on a device compute what they compute on the CPU: devices_agree_test.py LAUNCHER DEVICE [unittest argument ...].

DEVICE is a kind: sim (the simulated one, a plugin that ACCEL_DEVICE_PLUGINS names), cuda, xpu. Where this machine has none the
test is skipped, with the reason. Each rank has a device of its own.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import accel

PROGRAM = pathlib.Path(__file__).with_name("device_program.py")
SECONDS = 200
# What else than the order of sums makes a difference: optimizers and gradient norms, which on the CPU are fused kernels of the library and
# round once where LibTorch's operators round each step; and autocast, whose lists of operators are each device's own.
TRAINED = dict.fromkeys(("float32", "accumulation", "join", "local_sgd", "parameters", "callback"), 1e-5)
ROUNDED = {**TRAINED, "compressed_gradients": 1e-3, "low_rank_gradients": 1e-4, "bf16": 0.05, "fp16": 0.05}
ON_FOUR_RANKS = ("float32", "accumulation", "join", "metrics")
CASES = (*ON_FOUR_RANKS, "bf16", "fp16", "workers", "local_sgd", "compressed_gradients", "low_rank_gradients", "checkpoint", "from_the_cpu",
         "random_numbers", "callback", "parameters", "torchscript", "dlpack")
EXACT_ON = ("sim",)  # devices whose kernels are the CPU's: all other cases have the same bits


def run(cases, device, ranks, folder, of_cpu=""):
    """One job that runs the cases one after another."""
    command = [LAUNCHER, "launch", "--num-processes", str(ranks), "--", sys.executable, str(PROGRAM), folder, *cases]
    environment = dict(os.environ, ACCELERATE_TORCH_DEVICE=device, OMP_NUM_THREADS="1", FOLDER_OF_THE_CPU=of_cpu)
    environment.pop("ACCELERATE_USE_CPU", None)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{device}, {ranks} ranks: {result.stdout[-1000:]}{result.stderr[-3000:]}")


def outcome(case, folder):
    """{name: numbers}"""
    return json.loads(pathlib.Path(folder, f"{case}.json").read_text(encoding="utf-8"))


class DevicesAgree(unittest.TestCase):
    def compare(self, cases, ranks):
        with tempfile.TemporaryDirectory() as of_cpu, tempfile.TemporaryDirectory() as of_device:
            run(cases, "cpu", ranks, of_cpu, of_cpu)
            run(cases, DEVICE, ranks, of_device, of_cpu)
            for case in cases:
                with self.subTest(case):
                    self.assert_agree(case, outcome(case, of_device), outcome(case, of_cpu))

    def test_one_rank(self):
        self.compare(CASES, 1)

    def test_two_ranks(self):
        self.compare(CASES, 2)

    def test_four_ranks(self):
        self.compare(ON_FOUR_RANKS, 4)

    def test_resume(self):
        """One rank, then two, then one have the losses of one."""
        with tempfile.TemporaryDirectory() as folder:
            run(["resume_whole", "resume_first"], DEVICE, 1, folder)
            run(["resume_second"], DEVICE, 2, folder)
            run(["resume_last"], DEVICE, 1, folder)
            expected = outcome("resume_whole", folder)["loss"]
            losses = []
            for part, ranks in (("resume_first", 1), ("resume_second", 2), ("resume_last", 1)):
                losses += outcome(part, folder)["loss"][::ranks]
        self.assertEqual(len(losses), len(expected))
        for step, (mine, other) in enumerate(zip(losses, expected)):
            self.assertLessEqual(abs(mine - other), 1e-5 * abs(other), f"step {step}: {losses} and {expected}")

    def assert_agree(self, case, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        tolerance = max(ROUNDED.get(case, 0), 0 if DEVICE in EXACT_ON else 1e-4)
        for name, numbers in expected.items():
            self.assertEqual(len(found[name]), len(numbers), name)
            for place, (mine, other) in enumerate(zip(found[name], numbers)):
                self.assertLessEqual(abs(mine - other), tolerance * max(1, abs(other)), f"{name}[{place}]: {mine} and {other}")


if __name__ == "__main__":
    LAUNCHER, DEVICE = sys.argv[1:3]
    if reason := accel.capi.accel_unavailable_reason(DEVICE):
        print(reason)
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
