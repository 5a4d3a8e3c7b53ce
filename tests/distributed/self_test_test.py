#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`accel test` on this machine, and when it cannot work.

usage: self_test_test.py PATH_OF_ACCEL [unittest argument ...]
"""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from run_ranks import free_port

ACCEL = ""
PARTS = ["start", "collectives", "loaders", "training", "checkpoint", "bf16"]


class SelfTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_test(self, *arguments, **variables):
        environment = dict(os.environ, TMPDIR=self.folder, HF_HOME=self.folder, **variables)
        result = subprocess.run([ACCEL, "test", *arguments], capture_output=True, text=True, timeout=200, check=False,
                                env=environment)
        self.assertEqual(glob.glob(self.folder + "/accel-test-*"), [])
        return result

    def test_all_parts_work(self):
        result = self.run_test()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual([line.split()[:2] for line in lines[:-1]], [[part, "works"] for part in PARTS])
        self.assertEqual(lines[-1], "Test is a success!")
        self.assertIn("2 processes", lines[0])

    def test_as_json_with_another_number(self):
        result = self.run_test("--json", "--num-processes", "1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        parts = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([part["part"] for part in parts], PARTS)
        self.assertTrue(all(part["works"] and part["seconds"] >= 0 for part in parts))
        self.assertIn("1 processes", parts[0]["detail"])

    def test_as_the_configuration_file_says(self):
        path = os.path.join(self.folder, "job.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 3\n")
        result = self.run_test("--config_file", path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_a_part_that_fails_is_named(self):
        result = self.run_test(ACCELERATE_TORCH_DEVICE="no_such_device")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout + result.stderr, "start .*FAILS|no_such_device")
        self.assertNotIn("success", result.stdout)

    def test_one_that_waits_is_ended_in_time(self):
        program = os.path.join(os.path.dirname(ACCEL), "accel-checkpoint")
        alone = dict(os.environ, RANK="0", LOCAL_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_PORT=str(free_port()))
        result = subprocess.run([program, "self-test", self.folder, "2", "text"], capture_output=True, timeout=100,
                                check=False, env=alone)
        self.assertEqual(result.returncode, -signal.SIGALRM)

    def test_a_soak(self):
        result = self.run_test("--soak", "0.02")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual([line.split()[:2] for line in result.stdout.splitlines()], [["processors", "works"], ["memory", "works"]])
        self.assertRegex(result.stdout, r"processors .* [1-9]\d* processors, [1-9]\d* products, none wrong\n")

    def test_a_soak_that_is_interrupted(self):
        program = subprocess.Popen([ACCEL, "test", "--soak", "10", "--json"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(program.kill)
        time.sleep(1)
        program.send_signal(signal.SIGINT)
        parts = [json.loads(line) for line in program.communicate(timeout=60)[0].splitlines()]
        self.assertEqual(program.returncode, 130)
        self.assertEqual([part["part"] for part in parts], ["processors", "memory"])
        for part in parts:
            self.assertTrue(part["works"] and part["seconds"] < 60 and "interrupted, 600 s were asked for" in part["detail"], part)

    def test_wrong_arguments(self):
        for arguments in (["--timeout", "0"], ["--soak", "0"], ["--num-processes", "x"], ["more"], ["--config_file", "missing.yaml"]):
            result = self.run_test(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual((result.stdout, len(result.stderr.splitlines())), ("", 1), arguments)


if __name__ == "__main__":
    ACCEL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
