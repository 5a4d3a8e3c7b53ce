#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of examples/README.md in each language that is built, and compares their lines:
examples_agree_test.py README LAUNCHER LANGUAGE=COMMAND... where {} in COMMAND is the name of a program. With
ACCELERATE_TORCH_DEVICE they run on that device, and print what the first one prints on the CPU. They run in two processes, or only those
that $ACCEL_TEST_IN_TWO names, and the others in one."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

from tiny_models import write_llama

README, LAUNCHER = sys.argv[1:3]
LANGUAGES = dict(argument.split("=", 1) for argument in sys.argv[3:])
PROGRAMS = ["hello", "train", "custom_module", "split_model", "pipeline", "checkpoint", "embed"]
IN_TWO = os.environ.get("ACCEL_TEST_IN_TWO", " ".join(PROGRAMS)).split()
WITH_FOLDER = ["checkpoint", "embed"]
DRAWS_ON_THE_DEVICE = ["checkpoint"]  # a dropout


def documented_names(program):
    """The names of the lines that the README shows for a program."""
    with open(README) as readme:
        section = readme.read().split(f"\n## {program}\n")[1].split("\n## ")[0]
    shown = re.findall(r"^    (?!{)(.*)$", section, re.MULTILINE)
    return [line.split(":")[0] for line in shown]


def lines_of(language, program, processes, *arguments, **variables):
    with tempfile.TemporaryDirectory() as folder:
        command = shlex.split(LANGUAGES[language].replace("{}", program))
        command += arguments
        if program in WITH_FOLDER:
            command.append(os.path.join(folder, "made"))
        launched = [LAUNCHER, "launch", "--num-processes", str(processes), "--", *command]
        done = subprocess.run(launched, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200,
                              env=dict(os.environ, ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1", **variables))
    assert done.returncode == 0, f"{program} in {language}, {processes} processes: {done.stdout}{done.stderr}"
    return done.stdout.splitlines()


class ExamplesAgree(unittest.TestCase):
    def compare(self, program):
        processes = 2 if program in IN_TWO else 1
        lines = {language: lines_of(language, program, processes) for language in LANGUAGES}
        first = next(iter(LANGUAGES))
        if "ACCELERATE_TORCH_DEVICE" in os.environ and program not in DRAWS_ON_THE_DEVICE:
            self.assertEqual(lines[first], lines_of(first, program, processes, ACCELERATE_TORCH_DEVICE="cpu"))
        for language in LANGUAGES:
            self.assertEqual(lines[language], lines[first], f"{language} and {first}")
        if program != "hello":
            self.assertEqual([line.split(":")[0] for line in lines[first]], documented_names(program))

    def test_hello(self):
        self.compare("hello")
        self.assertEqual(lines_of(next(iter(LANGUAGES)), "hello", 2), documented_names("hello"))

    def test_train(self):
        self.compare("train")

    def test_custom_module(self):
        self.compare("custom_module")

    def test_split_model(self):
        """Split over two processes it learns as in one, in which it is whole."""
        parts = {language: lines_of(language, "split_model", 2, PARALLELISM_CONFIG_TP_SIZE="2") for language in LANGUAGES}
        first = next(iter(LANGUAGES))
        for language in LANGUAGES:
            self.assertEqual(parts[language], parts[first], f"{language} and {first}")
        self.assertEqual([line.split(":")[0] for line in parts[first]], documented_names("split_model"))
        self.assertEqual(parts[first][1], "up here: 16 x 7")
        whole = lines_of(first, "split_model", 1)
        self.assertEqual(whole[1], "up here: 32 x 7")
        self.assertEqual(parts[first][2:], whole[2:])

    def test_pipeline(self):
        """In two stages it learns as in one."""
        stages = {language: lines_of(language, "pipeline", 2, PARALLELISM_CONFIG_PP_SIZE="2") for language in LANGUAGES}
        first = next(iter(LANGUAGES))
        for language in LANGUAGES:
            self.assertEqual(stages[language], stages[first], f"{language} and {first}")
        self.assertEqual([line.split(":")[0] for line in stages[first]], documented_names("pipeline"))
        self.assertEqual(stages[first][1], "parameters here: 1312")
        whole = lines_of(first, "pipeline", 1)
        self.assertEqual(whole[1], "parameters here: 1642")
        self.assertEqual(stages[first][2:], whole[2:])

    def test_checkpoint(self):
        self.compare("checkpoint")

    def test_embed(self):
        self.compare("embed")

    def test_big_model(self):
        on_device = "ACCELERATE_TORCH_DEVICE" in os.environ
        budget = '{"0": "24KB", "cpu": "1GB"}' if on_device else '{"cpu": "24KB"}'
        with tempfile.TemporaryDirectory() as folder:
            write_llama(folder)

            def run(language, *placement):
                lines = lines_of(language, "big_model", 1, folder, "--tokens", "3,1,4,1,5", "--new-tokens", "6", *placement)
                self.assertEqual([line.split(":")[0] for line in lines], documented_names("big_model"))
                self.assertGreater(float(lines[3].split(":")[1]), 0)
                self.assertGreater(int(lines[4].split(":")[1]), 0)
                return lines[:3]

            first = next(iter(LANGUAGES))
            expected = run(first, "--max-memory", budget)
            self.assertEqual(set(json.loads(expected[1].split(": ", 1)[1]).values()), {0, "cpu"} if on_device else {"cpu", "disk"})
            for language in LANGUAGES:
                self.assertEqual(run(language, "--max-memory", budget), expected, language)
                whole = run(language, "--device-map", '{"": "cpu"}')
                self.assertEqual(whole, [expected[0], 'device map: {"":"cpu"}', expected[2]], language)


if __name__ == "__main__":
    if "train" not in IN_TWO:
        del ExamplesAgree.test_big_model  # of one process in any case: the run with the training in two has it
    for program in {"split_model", "pipeline"} - set(IN_TWO):
        delattr(ExamplesAgree, f"test_{program}")  # of two processes in any case
    unittest.main(argv=sys.argv[:1])
