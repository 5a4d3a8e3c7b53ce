"""Ranks that a test starts one by one, without a launcher, and the ways in which they end."""

import subprocess
import unittest

from run_ranks import free_port

LIMIT_S = 60


class RankTestCase(unittest.TestCase):
    def setUp(self):
        self.port = free_port()

    def start(self, command, environment, before=None):
        process = subprocess.Popen(command, env=environment, preexec_fn=before, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

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
