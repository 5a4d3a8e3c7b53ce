#!/usr/bin/env python3
"""Random training programs come out the same with one rank and several, with accumulation, and after a resume.

usage: programs_agree.py ACCEL_PROGRAM [COUNT]

With $ACCEL_REFERENCE_PYTHON, a Python that has Accelerate 1.15 and torch 2.13, they are also compared with the reference.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import program as programs

RUNNER = pathlib.Path(__file__).with_name("run_programs.py")
# Of runs that share their rows otherwise. Measured in 600 programs: 1e-15, of RMSprop 4e-13; 3e-7, of RMSprop 3e-5; 6e-3. NAdam of the reference
# keeps a product in float32, which makes 2e-8.
TOLERANCES = {"float64": 1e-6, "float32": 3e-4, "bf16": 3e-2}
SECONDS = 2  # of a program, on a busy machine


def run_programs(command, *arguments):
    """{seed: outcome}"""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        result = subprocess.run([*command, str(RUNNER), "--count", str(COUNT), "--out", out, *arguments], text=True,
                                capture_output=True, timeout=300 + SECONDS * COUNT, check=False)
        if result.returncode != 0:
            raise AssertionError(result.stdout[-2000:] + result.stderr[-2000:])
        return json.loads(pathlib.Path(out).read_text())


def with_ranks(count):
    return [sys.executable] if count == 1 else [ACCEL, "launch", "--num-processes", str(count), "--", sys.executable]


def resumes_exactly(program):
    """Checkpoints hold no gradients of complete groups: a parameter that no backward reaches has one of zeros no more."""
    return program["set_to_none"] or not programs.has_idle_parameters(program)


def numbers(value):
    """All numbers of nested lists and maps, in one order."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [number for item in value for number in numbers(item)] if isinstance(value, list) else [value]


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = run_programs(with_ranks(1))

    def assert_agree(self, outcomes, is_comparable=lambda program: True, tolerances=TOLERANCES):
        for seed in self.expected:
            program = programs.make_program(int(seed))
            if not is_comparable(program):
                continue
            with self.subTest(program=program):
                outcome, tolerance = outcomes[seed], tolerances[program["precision"]]
                for part in ("losses", "lrs", "parameters", "buffers"):
                    ours, theirs = numbers(outcome[part]), numbers(self.expected[seed][part])
                    self.assertEqual(len(ours), len(theirs))
                    for mine, other in zip(ours, theirs):
                        self.assertLessEqual(abs(mine - other), tolerance * max(1, abs(other)), part)

    def test_accumulation(self):
        self.assert_agree(run_programs(with_ranks(1), "--accumulation", "2"))

    def test_resume(self):
        self.assert_agree(run_programs(with_ranks(1), "--resume"), resumes_exactly, dict.fromkeys(TOLERANCES, 0))  # bit for bit

    def test_two_ranks_that_accumulate(self):
        self.assert_agree(run_programs(with_ranks(2), "--accumulation", "3"))

    def test_three_ranks(self):
        self.assert_agree(run_programs(with_ranks(3)))

    def test_two_ranks_that_resume(self):
        self.assert_agree(run_programs(with_ranks(2), "--resume"), resumes_exactly)

    @unittest.skipUnless("ACCEL_REFERENCE_PYTHON" in os.environ, "no Python with Accelerate is given")
    def test_the_reference(self):
        # torch goes on moving a frozen parameter whose gradient was filled with zeros.
        self.assert_agree(run_programs([os.environ["ACCEL_REFERENCE_PYTHON"]], "--reference"),
                          lambda program: (program["frozen_from"] is None or program["set_to_none"]) and program["optimizer"] not in programs.NOT_IN_TORCH)


if __name__ == "__main__":
    ACCEL = os.path.abspath(sys.argv.pop(1))
    COUNT = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 50
    unittest.main()
