#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All steps of the script on a device that every machine has: rehearsal_test.py BUILD_FOLDER LIBTORCH TORCH_PYTHON DEVICE"""

import pathlib
import sys
import time
import unittest

import bundles

BUILD, LIBTORCH, TORCH_PYTHON, DEVICE = sys.argv[1:5]
SECONDS = 180
COMMON = {"device", "machine", "loads", "env", "hello", "example_train", "example_custom_module", "example_own_gradients", "example_checkpoint", "gpt_losses",
          "captured_step", "ddp", "fsdp", "killed_rank", "checkpoints", "big_model", "speed_gpt_bf16_c_1", "speed_mlp_c_1", "speed_overhead_c_1"}
MUST_PASS = {"cpu": COMMON, "sim": COMMON | {"page_locked", "order", "device_tests", "device_faults", "agree_1_rank", "agree_resume"}}


class Rehearsal(unittest.TestCase):
    def test_every_step_passes_or_says_why_it_does_not_run(self):
        with bundles.temporary() as folder:
            bundle, out = pathlib.Path(folder, "bundle"), pathlib.Path(folder, "out")
            made = bundles.make(BUILD, bundle)
            self.assertEqual(made.returncode, 0, made.stderr)
            began = time.monotonic()
            done = bundles.Runner(LIBTORCH, TORCH_PYTHON).run(bundle, out, SECONDS, DEVICE=DEVICE)
            self.assertLess(time.monotonic() - began, SECONDS)
            failed = [f"{name}: {result['reason']}" for name, result in bundles.results(out).items() if result["outcome"] == "failed"]
            self.assertEqual(failed, [], done.stderr + (out / "steps.log").read_text()[-6000:])
            self.assertEqual(done.returncode, 0)
            passed = {name for name, result in bundles.results(out).items() if result["outcome"] == "passed"}
            self.assertLessEqual(MUST_PASS[DEVICE], passed)
            for name, result in bundles.results(out).items():
                self.assertTrue(result["outcome"] == "passed" or result["reason"], name)
            self.check_files(out)

    def check_files(self, out):
        """What comes back from a machine: few files, whose figures are those of this device."""
        self.assertLessEqual({file.name for file in out.iterdir()}, {"steps.log", "results.jsonl", "summary.txt", "trace.json.gz", "peer_tests.json"})
        self.assertIn("all steps are done", (out / "summary.txt").read_text())
        results = bundles.results(out)
        for step, member, value in (("speed_mlp_c_1", "device", None if DEVICE == "cpu" else DEVICE), ("checkpoints", "device", f"{DEVICE}:0"),
                                    ("ddp", "device", f"{DEVICE}:0")):
            self.assertEqual(results[step]["figures"][0].get(member), value if DEVICE != "cpu" or value is None else "cpu", step)
        for step in ("gpt_losses", "killed_rank", "big_model", "machine"):
            self.assertTrue(results[step]["figures"], step)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
