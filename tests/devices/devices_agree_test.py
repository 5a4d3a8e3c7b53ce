#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs on a device compute what they compute on the CPU: devices_agree_test.py LAUNCHER DEVICE [unittest argument ...].

DEVICE is a kind: sim (the simulated one, a plugin that ACCEL_DEVICE_PLUGINS names), cuda, xpu. Where this machine has none the
test is skipped, with the reason. Each rank has a device of its own where there are as many; two ranks also share one, through host memory.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tested_device
import tolerances

PROGRAM = pathlib.Path(__file__).with_name("device_program.py")
SECONDS = 200
ON_FOUR_RANKS = ("float32", "accumulation", "join", "metrics")
CASES = (*ON_FOUR_RANKS, "bf16", "fp16", "workers", "local_sgd", "compressed_gradients", "low_rank_gradients", "checkpoint", "from_the_cpu",
         "loaded_before_it_is_prepared", "random_numbers", "callback", "parameters", "torchscript", "dlpack")
# How a job sees one device of a kind, and no more.
ONE_DEVICE = {"cuda": {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}, "sim": {"SIMULATED_DEVICE_COUNT": "1"}}


def run(cases, device, ranks, folder, of_cpu="", **variables):
    """One job that runs the cases one after another."""
    command = [LAUNCHER, "launch", "--num-processes", str(ranks), "--", sys.executable, str(PROGRAM), folder, *cases]
    environment = dict(os.environ, ACCELERATE_TORCH_DEVICE=device, OMP_NUM_THREADS="1", FOLDER_OF_THE_CPU=of_cpu, **variables)
    environment.pop("ACCELERATE_USE_CPU", None)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{device}, {ranks} ranks: {result.stdout[-1000:]}{result.stderr[-3000:]}")
    return result.stderr


def outcome(case, folder):
    """{name: numbers}"""
    return json.loads(pathlib.Path(folder, f"{case}.json").read_text(encoding="utf-8"))


def staged():
    """Variables of a job whose ranks share one device, and exchange through host memory."""
    return {"ACCEL_BACKEND": f"{DEVICE}:staged", **ONE_DEVICE[DEVICE]}


class DevicesAgree(unittest.TestCase):
    def compare(self, cases, ranks, **variables):
        with tempfile.TemporaryDirectory() as of_cpu, tempfile.TemporaryDirectory() as of_device:
            run(cases, "cpu", ranks, of_cpu, of_cpu)
            logged = run(cases, DEVICE, ranks, of_device, of_cpu, **variables)
            for case in cases:
                with self.subTest(case):
                    self.assert_agree(case, outcome(case, of_device), outcome(case, of_cpu))
        return logged

    def need_devices(self, count):
        if (there := tested_device.count(DEVICE)) < count:
            self.skipTest(f"needs {count} devices of the kind {DEVICE}; there are {there}")

    def test_one_rank(self):
        self.compare(CASES, 1)

    def test_two_ranks(self):
        self.need_devices(2)
        self.compare(CASES, 2)

    def test_two_ranks_that_share_a_device(self):
        if DEVICE not in ONE_DEVICE:
            self.skipTest(f"it is not known how a job sees one {DEVICE} alone")
        self.compare(CASES, 2, **staged())

    # Regression: with a limit of 0 for page-locked memory, asynchronous saves and staged collectives failed.
    def test_no_page_locked_memory(self):
        """As with a limit of 0: copies wait, which one warning says, and nothing fails."""
        if DEVICE != "sim":
            self.skipTest("only the simulated device has a limit of its own")
        logged = self.compare(("float32", "metrics", "checkpoint"), 2, SIMULATED_DEVICE_PINNED_BYTES="0", ACCEL_LOG="warning")
        self.assertEqual(logged.count("rank 0: this process gets no page-locked memory for sim, so that copies wait"), 1, logged)

    def test_four_ranks(self):
        self.need_devices(4)
        self.compare(ON_FOUR_RANKS, 4)

    def test_resume(self):
        """One rank, then two, then one have the losses of one."""
        with tempfile.TemporaryDirectory() as folder:
            run(["resume_whole", "resume_first"], DEVICE, 1, folder)
            run(["resume_second"], DEVICE, 2, folder, **({} if tested_device.count(DEVICE) > 1 else staged()))
            run(["resume_last"], DEVICE, 1, folder)
            expected = outcome("resume_whole", folder)["loss"]
            losses = []
            for part, ranks in (("resume_first", 1), ("resume_second", 2), ("resume_last", 1)):
                losses += outcome(part, folder)["loss"][::ranks]
        self.assertEqual(len(losses), len(expected))
        for step, (mine, other) in enumerate(zip(losses, expected)):
            self.assertLessEqual(abs(mine - other), tolerances.BY_DTYPE["float32"] * abs(other), f"step {step}: {losses} and {expected}")

    def assert_agree(self, case, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        allowed = tolerances.tolerance(case, DEVICE)
        for name, numbers in expected.items():
            self.assertEqual(len(found[name]), len(numbers), name)
            if name.startswith("drawn") and DEVICE not in tolerances.EXACT_ON:
                continue  # each kind of device has random numbers of its own
            for place, (mine, other) in enumerate(zip(found[name], numbers)):
                self.assertLessEqual(abs(mine - other), allowed * max(1, abs(other)), f"{name}[{place}]: {mine} and {other}")


if __name__ == "__main__":
    LAUNCHER, DEVICE = sys.argv[1:3]
    tested_device.skip_without(DEVICE)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
