#!/usr/bin/env python3
"""Runs the five programs of examples/README.md in each language that is built, and compares their lines:
examples_agree_test.py README LAUNCHER LANGUAGE=COMMAND... where {} in COMMAND is the name of a program. With
ACCELERATE_TORCH_DEVICE they run on that device, and print what the first one prints on the CPU."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

README, LAUNCHER = sys.argv[1:3]
LANGUAGES = dict(argument.split("=", 1) for argument in sys.argv[3:])
PROGRAMS = ["hello", "train", "custom_module", "checkpoint", "embed"]
WITH_FOLDER = ["checkpoint", "embed"]
DRAWS_ON_THE_DEVICE = ["checkpoint"]  # a dropout


def documented_names(program):
    """The names of the lines that the README shows for a program."""
    with open(README) as readme:
        section = readme.read().split(f"\n## {program}\n")[1].split("\n## ")[0]
    shown = re.findall(r"^    ([^{\n]*)$", section, re.MULTILINE)
    return [line.split(":")[0] for line in shown]


def lines_of(language, program, processes, **variables):
    with tempfile.TemporaryDirectory() as folder:
        command = shlex.split(LANGUAGES[language].replace("{}", program))
        if program in WITH_FOLDER:
            command.append(os.path.join(folder, "made"))
        launched = [LAUNCHER, "launch", "--num-processes", str(processes), "--", *command]
        done = subprocess.run(launched, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200,
                              env=dict(os.environ, ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1", **variables))
    assert done.returncode == 0, f"{program} in {language}, {processes} processes: {done.stdout}{done.stderr}"
    return done.stdout.splitlines()


class ExamplesAgree(unittest.TestCase):
    def compare(self, program):
        for processes in (2,) if "ACCELERATE_TORCH_DEVICE" in os.environ else (1, 2):
            with self.subTest(processes=processes):
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

    def test_checkpoint(self):
        self.compare("checkpoint")

    def test_embed(self):
        self.compare("embed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
