#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C of docs/embedding.md is the sample, or compiles: embedding_page_test.py ROOT [unittest argument ...]; CC names the compiler."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
CC = shlex.split(os.environ.get("CC", "cc"))


class EmbeddingPage(unittest.TestCase):
    def setUp(self):
        self.page = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
        self.blocks = re.findall(r"^```c\n(.*?)^```$", self.page, re.MULTILINE | re.DOTALL)

    def test_the_sample_is_shown_as_it_is(self):
        self.assertEqual(self.blocks[0], (ROOT / "examples" / "c" / "sixty_hertz.c").read_text(encoding="utf-8"))

    def test_the_others_compile(self):
        self.assertGreaterEqual(len(self.blocks), 2)
        for block in self.blocks[1:]:
            done = subprocess.run([*CC, "-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only",
                                   f"-I{ROOT / 'include'}", "-x", "c", "-"], input=f"#include <accel.h>\n{block}", text=True,
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_variables_and_calls_that_it_names_exist(self):
        api = (ROOT / "api" / "accel.json").read_text(encoding="utf-8")
        for name in set(re.findall(r"\baccel_[a-z0-9_]+(?=\()", self.page)):
            self.assertIn(f'"{name}"', api, name)
        self.assertIn("ACCEL_EMBEDDED", api)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
