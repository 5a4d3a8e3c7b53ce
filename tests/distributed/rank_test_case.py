# SPDX-License-Identifier: Apache-2.0
"""Ranks that a test starts one by one, without a launcher, and the ways in which they end."""

import pathlib
import sys

from run_ranks import free_port

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from process_test_case import ProcessTestCase

LIMIT_S = 60


class RankTestCase(ProcessTestCase):
    def setUp(self):
        self.port = free_port()

    def assert_done(self, *processes):
        for process in processes:
            _, errors = process.communicate(timeout=LIMIT_S)
            self.assertEqual((process.returncode, errors), (0, ""))

    def assert_fails(self, process, *words, seconds=LIMIT_S):
        """It ends in time, in order, with one line that has these words."""
        _, errors = process.communicate(timeout=seconds)
        self.assertEqual(process.returncode, 1, errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        for word in words:
            self.assertIn(word, errors)
