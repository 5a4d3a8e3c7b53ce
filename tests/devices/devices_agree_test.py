#!/usr/bin/env python3
"""Programs on a device compute what they compute on the CPU: devices_agree_test.py LAUNCHER DEVICE [CASE...].

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
EXACT_ON = ("sim",)  # devices whose kernels are the CPU's: all other cases have the same bits


def outcome(case, device, ranks, folder):
    """{name: numbers}"""
    out = os.path.join(folder, "out.json")
    command = [LAUNCHER, "launch", "--num-processes", str(ranks), "--", sys.executable, str(PROGRAM), case, out, folder]
    environment = dict(os.environ, ACCELERATE_TORCH_DEVICE=device, OMP_NUM_THREADS="1")
    environment.pop("ACCELERATE_USE_CPU", None)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{case} on {device}, {ranks} ranks: {result.stdout[-1000:]}{result.stderr[-3000:]}")
    return json.loads(pathlib.Path(out).read_text(encoding="utf-8"))


class DevicesAgree(unittest.TestCase):
    def compare(self, case, ranks):
        with tempfile.TemporaryDirectory() as of_cpu, tempfile.TemporaryDirectory() as of_device:
            expected = outcome(case, "cpu", ranks, of_cpu)
            found = outcome(case, DEVICE, ranks, of_device)
            self.assert_agree(case, found, expected)
            if case == "checkpoint":
                self.assert_agree("from_the_cpu", outcome("from_the_cpu", DEVICE, ranks, of_cpu), outcome("from_the_cpu", "cpu", ranks, of_cpu))

    def resume(self):
        """One rank, then two, then one have the losses of one."""
        with tempfile.TemporaryDirectory() as folder:
            expected = outcome("resume_whole", DEVICE, 1, folder)["loss"]
            losses = []
            for part, ranks in (("resume_first", 1), ("resume_second", 2), ("resume_last", 1)):
                losses += outcome(part, DEVICE, ranks, folder)["loss"][::ranks]
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


def add_tests(cases):
    for case in cases:
        if case == "resume":
            DevicesAgree.test_resume = DevicesAgree.resume
            continue
        for ranks in (1, 2, 4) if case in ON_FOUR_RANKS else (1, 2):
            def test(self, case=case, ranks=ranks):
                self.compare(case, ranks)
            setattr(DevicesAgree, f"test_{case}_on_{ranks}_ranks", test)


if __name__ == "__main__":
    LAUNCHER, DEVICE = sys.argv[1:3]
    if reason := accel.capi.accel_unavailable_reason(DEVICE):
        print(reason)
        sys.exit(77)
    add_tests(sys.argv[3:])
    unittest.main(argv=sys.argv[:1])
