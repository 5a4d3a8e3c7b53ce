#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each command of bench/run in small: commands_test.py BENCH_RUN BUILD_FOLDER"""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH_RUN, BUILD = sys.argv.pop(1), sys.argv.pop(1)
sys.dont_write_bytecode = True  # of bench/run, which has no name of a module
FOLDER = tempfile.TemporaryDirectory(prefix="accel-bench-")
SMALL = {
    "startup": ["--repeat", "1"],
    "launch": ["--repeat", "1", "--launchers", "accel", "env"],
    "bootstrap": ["--ranks", "4"],
    "collective": ["--ops", "all", "--bytes", "64", "--dtypes", "fp32", "--samples", "1"],
    "train-mlp": ["--width", "8", "--depth", "2", "--batch", "4", "--steps", "2"],
    "train-gpt": ["--steps", "1", "--blocks", "1"],
    "train-fsdp": ["--steps", "1"],
    "train-cp": ["--length", "64", "--steps", "1"],
    "train-tp": ["--steps", "1"],
    "train-pipeline": ["--steps", "1"],
    "pipeline-forward": ["--steps", "1"],
    "pipeline-decode": ["--rows", "2", "--tokens", "2", "--steps", "1"],
    "pipeline-boundary": ["--micro-batches", "2", "--samples", "1"],
    "stage-cut": ["--width", "8", "--layers", "2"],
    "fp8": ["--rows", "8", "--inputs", "8", "--outputs", "8", "--steps", "1"],
    "quantized": ["--batch", "2", "--size", "128", "--weights", "1", "--steps", "1"],
    "region-operators": ["--samples", "1"],
    "own-gradients": ["--steps", "1"],
    "optimizer": ["--optimizers", "sgd", "--steps", "1"],
    "cross-entropy": ["--rows", "8", "--features", "8", "--classes", "16", "--steps", "1"],
    "dataloader": ["--kinds", "tensor", "--workers", "0"],
    "checkpoint": ["--tensors", "1", "--parts", "state", "--repeat", "1", "--dir", FOLDER.name],
    "overhead": ["--steps", "10", "--repeat", "1"],
    "embedded": ["--steps", "10"],
    "replica-digest": ["--megabytes", "1", "--steps", "1"],
    "tracking": ["--scalars", "100", "--repeat", "1", "--dir", FOLDER.name],
    "observe": ["--repeat", "1"],
    "devicemap": ["--layers", "2", "--repeat", "1"],
    "report": ["--points", "100", "--names", "1", "--repeat", "1"],
}
ELSEWHERE = {
    "bigmodel": "needs the files of a Llama",
    "call-overhead": "needs the other languages' compilers",
    "language-model": "needs the files of a Llama",
    "roofline": "roofline_test.py",
    "sentences": "needs the files of an encoder and its tokenizer",
    "staged": "device_test.py",
}


def commands():
    """The names that bench/run knows."""
    loader = importlib.machinery.SourceFileLoader("bench_run", BENCH_RUN)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
    loader.exec_module(module)
    return set(next(action.choices for action in module.parser()._actions if action.dest == "command"))


class CommandsTest(unittest.TestCase):
    def test_every_command_is_here(self):
        self.assertEqual(commands(), SMALL.keys() | ELSEWHERE.keys())

    def test_each_prints_figures(self):
        for name, options in SMALL.items():
            with self.subTest(name):
                environment = {name: value for name, value in os.environ.items() if name != "ACCEL_PLUGIN_PATH"}  # as a reader has it
                done = subprocess.run([sys.executable, BENCH_RUN, name, *options], env=dict(environment, ACCEL_BUILD=BUILD),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                rows = [json.loads(line) for line in done.stdout.splitlines()]
                self.assertTrue(rows)
                for row in rows:
                    self.assertGreaterEqual(row["value"], 0)
                    self.assertLessEqual({"bench", "params", "unit", "higher_is_better"}, row.keys())


if __name__ == "__main__":
    unittest.main()
