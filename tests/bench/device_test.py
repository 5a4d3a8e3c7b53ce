#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workloads on the simulated device: device_test.py BENCH_RUN BUILD_FOLDER COUNT_WAITS

They compute on the device that is asked for, and wait for it in each sample. COUNT_WAITS is the library that counts that.
"""

import json
import os
import re
import subprocess
import sys
import unittest

BENCH_RUN, BUILD, COUNT_WAITS = sys.argv[1:4]
# The options of a small run, and how many samples it has.
WORKLOADS = {
    "train-mlp": (["--procs", "1", "--width", "16", "--steps", "3"], 3),
    "train-gpt": (["--procs", "1", "--blocks", "1", "--steps", "1", "--precision", "fp16"], 1),
    "train-fsdp": (["--procs", "1", "--model", "gpt", "--steps", "1"], 1),
    "overhead": (["--steps", "5", "--repeat", "2"], 2),
    "optimizer": (["--variants", "fused", "--steps", "2"], 2),
    "cross-entropy": (["--variants", "fused", "--rows", "64", "--features", "16", "--classes", "100", "--steps", "2"], 2),
    "staged": (["--procs", "1", "--bytes", "4096", "--samples", "1"], 1),
}


def run(name, device, *arguments, preload=""):
    environment = {**os.environ, "ACCEL_BUILD": BUILD, "ACCEL_DEVICE_PLUGINS": os.environ["SIMULATED_DEVICE_LIBRARY"], "LD_PRELOAD": preload}
    return subprocess.run([sys.executable, BENCH_RUN, name, "--device", device, *arguments], env=environment, capture_output=True, text=True, check=False)


class DeviceTest(unittest.TestCase):
    def test_each_workload_computes_on_the_device_and_waits_for_it(self):
        for name, (arguments, samples) in WORKLOADS.items():
            with self.subTest(name):
                done = run(name, "sim", *arguments, preload=COUNT_WAITS)
                self.assertEqual(done.returncode, 0, done.stderr)
                for row in map(json.loads, done.stdout.splitlines()):
                    self.assertEqual((row["device"], row["samples"]), ("sim", samples))
                    self.assertNotEqual(row["value"], 0)
                waits = max(int(count) for count in re.findall(r"^waits: (\d+)$", done.stderr, re.MULTILINE))
                self.assertGreaterEqual(waits, samples)

    def test_the_cpu_is_the_default_and_not_named(self):
        done = subprocess.run([sys.executable, BENCH_RUN, "train-mlp", "--procs", "1", "--width", "16", "--steps", "1"],
                              env={**os.environ, "ACCEL_BUILD": BUILD}, capture_output=True, text=True, check=True)
        self.assertNotIn("device", json.loads(done.stdout))

    def test_a_device_that_is_not_there(self):
        done = run("train-mlp", "nowhere", "--procs", "1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("nowhere", done.stderr)

    def test_a_workload_of_the_host_takes_no_device(self):
        done = run("dataloader", "sim")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--device", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
