#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench/run roofline in small: roofline_test.py BENCH_RUN BUILD_FOLDER"""

import json
import os
import subprocess
import sys
import unittest

BENCH_RUN, BUILD = sys.argv.pop(1), sys.argv.pop(1)
SMALL = ["roofline", "--workloads", "train-mlp", "--rounds", "1", "--milliseconds", "1", "--memory-mib", "1", "--threads", "2"]


def run(*arguments):
    env = dict(os.environ, ACCEL_BUILD=BUILD)
    result = subprocess.run([sys.executable, BENCH_RUN, *SMALL, *arguments], env=env, stdout=subprocess.PIPE, text=True, check=True)
    return result.stdout.splitlines()


class RooflineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = [json.loads(line) for line in run()]

    def test_peaks(self):
        peaks = [row for row in self.rows if "peak" in row["params"]]
        found = {(row["params"]["peak"], row["params"].get("dtype"), row["params"].get("kernels"), row["params"]["threads"])
                 for row in peaks}
        products = {("product", dtype, kernels, threads) for dtype in ("fp32", "bf16") for kernels in ("default", "onednn")
                    for threads in (1, 2)}
        passes = {(name, None, None, threads) for name in ("read", "write", "copy") for threads in (1, 2)}
        self.assertEqual(found, products | passes)
        for row in peaks:
            self.assertGreater(row["value"], 0)
        copies = [row["params"]["bytes"] for row in peaks if row["params"]["peak"] == "copy" and row["params"]["threads"] == 2]
        self.assertEqual(copies, [64 << 10, 256 << 10, 1 << 20])

    def test_each_workload(self):
        for precision, dtype in (("no", "fp32"), ("bf16", "bf16")):
            rows = [row for row in self.rows if row["params"].get("precision") == precision]
            by_name = {(row["params"]["operator"], row["params"].get("dtype")): row for row in rows}
            step = by_name["step", None]
            self.assertEqual((step["unit"], step["params"]["workload"]), ("ms", "train_mlp"))
            for name in ("gflops", "percent_of_peak", "observed_ms", "observing_percent", "optimizer_percent"):
                self.assertIn(name, step)
            shares = sum(row["value"] for row in rows if row["params"]["operator"] != "step")
            self.assertAlmostEqual(shares, 100, delta=0.5)
            self.assertIn(("outside of operators", None), by_name)
            for operator, calls in (("aten::addmm", 5), ("aten::mm", 9)):
                row = by_name[operator, dtype]
                self.assertEqual((row["unit"], row["calls"]), ("percent", calls))
                self.assertGreater(row["gflops"], 0)
                self.assertGreater(row["percent_of_peak"], 0)
                self.assertGreater(row["percent_of_bandwidth"], 0)

    def test_table(self):
        heading, *lines = run("--table", "--precision", "no")
        self.assertEqual(heading.split()[:3], ["workload", "precision", "operator"])
        self.assertTrue(any(line.startswith("train_mlp no        aten::addmm") for line in lines), lines)
        self.assertTrue(all(line.startswith(("machine", "train_mlp")) for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
