#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random training programs come out the same with one rank and several, with accumulation, after a resume, and shared out by sharding.

usage: programs_agree.py ACCEL_PROGRAM [COUNT [FIRST_SEED]] [TEST...]

With $ACCEL_TORCH_PYTHON, a Python that has torch 2.13, models of torch are sharded as well. With $ACCEL_REFERENCE_PYTHON, one that has
Accelerate 1.15, programs are also compared with it.
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
# Of runs that share their rows otherwise. Measured in 1,000 programs: 1e-15, of RMSprop 4e-13; 3e-7, of RMSprop 3e-5 and of its moments 4e-4; 6e-3.
# torch's NAdam keeps a product in float32, which makes 2e-8.
TOLERANCES = {"float64": 1e-6, "float32": 1e-3, "bf16": 3e-2}
SECONDS = 2  # of a program, on a busy machine
PARTS = ("losses", "lrs", "parameters", "buffers", "moments")


def run_programs(command, *arguments):
    """{seed: outcome}"""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        result = subprocess.run([*command, str(RUNNER), "--first", str(FIRST), "--count", str(COUNT), "--out", out, *arguments], text=True,
                                capture_output=True, timeout=300 + SECONDS * COUNT, check=False)
        if result.returncode != 0:
            raise AssertionError(result.stdout[-2000:] + result.stderr[-4000:])
        return json.loads(pathlib.Path(out).read_text())


def with_ranks(count, python=sys.executable):
    return [python] if count == 1 else [ACCEL, "launch", "--num-processes", str(count), "--", python]


def resumes_exactly(program):
    """Checkpoints hold no gradients of complete groups: a parameter that no backward reaches has one of zeros no more."""
    return program["set_to_none"] or not programs.has_idle_parameters(program)


def torch_agrees(program):
    """torch goes on moving a frozen parameter whose gradient was filled with zeros."""
    return program["frozen_from"] is None or program["set_to_none"]


def numbers(value):
    """All numbers of nested lists and maps, in one order."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [number for item in value for number in numbers(item)] if isinstance(value, list) else [value]


class Programs(unittest.TestCase):
    compared = 0

    @classmethod
    def setUpClass(cls):
        cls.expected = run_programs(with_ranks(1))

    def assert_agree(self, outcomes, is_comparable=lambda program: True, tolerances=TOLERANCES, parts=PARTS, ranks=0):
        """Those that ran; with `ranks` the programs were sharded by so many."""
        compared = 0
        for seed in outcomes:
            program = programs.make_program(int(seed))
            if not is_comparable(program):
                continue
            compared += 1
            sharding = {"sharding": programs.make_sharding(program, ranks)} if ranks else {}
            again = f"{os.path.relpath(__file__)} {ACCEL} 1 {seed} {self.id().removeprefix('__main__.')}"
            with self.subTest(again=again, program=program, **sharding):
                outcome, tolerance = outcomes[seed], tolerances[program["precision"]]
                for part in parts:
                    ours, theirs = numbers(outcome[part]), numbers(self.expected[seed][part])
                    self.assertEqual(len(ours), len(theirs), part)
                    for mine, other in zip(ours, theirs):
                        self.assertLessEqual(abs(mine - other), tolerance * max(1, abs(other)), part)
        print(f"{self.id().rpartition('.')[2]}: {compared} programs compared", flush=True)
        type(self).compared += compared

    def assert_sharded_agree(self, ranks, library, python, *arguments):
        outcomes = run_programs(with_ranks(ranks, python), "--with", library, "--sharded", *arguments)
        self.assert_agree(outcomes, lambda program: (library == "accel" or torch_agrees(program)) and (not arguments or resumes_exactly(program)),
                          ranks=ranks)

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

    def test_two_ranks_that_shard_and_resume(self):
        self.assert_sharded_agree(2, "accel", sys.executable, "--resume")

    def test_three_ranks_that_shard(self):
        self.assert_sharded_agree(3, "accel", sys.executable)

    def test_four_ranks_that_shard_and_resume(self):
        self.assert_sharded_agree(4, "accel", sys.executable, "--resume")

    @unittest.skipUnless("ACCEL_TORCH_PYTHON" in os.environ, "no Python with torch is given")
    def test_two_ranks_that_shard_models_of_torch_and_resume(self):
        self.assert_sharded_agree(2, "torch", os.environ["ACCEL_TORCH_PYTHON"], "--resume")

    @unittest.skipUnless("ACCEL_TORCH_PYTHON" in os.environ, "no Python with torch is given")
    def test_three_ranks_that_shard_models_of_torch(self):
        self.assert_sharded_agree(3, "torch", os.environ["ACCEL_TORCH_PYTHON"])

    @unittest.skipUnless("ACCEL_REFERENCE_PYTHON" in os.environ, "no Python with Accelerate is given")
    def test_the_reference(self):
        self.assert_agree(run_programs([os.environ["ACCEL_REFERENCE_PYTHON"]], "--with", "reference"), torch_agrees, parts=PARTS[:-1])


if __name__ == "__main__":
    ACCEL = os.path.abspath(sys.argv.pop(1))
    COUNT = int(sys.argv.pop(1)) if sys.argv[1:] and sys.argv[1].isdecimal() else 50
    FIRST = int(sys.argv.pop(1)) if sys.argv[1:] and sys.argv[1].isdecimal() else 0
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    print(f"{COUNT} programs agree in {Programs.compared} comparisons")
