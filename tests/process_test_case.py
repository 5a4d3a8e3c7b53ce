# SPDX-License-Identifier: Apache-2.0
"""Processes that a test starts one by one; those that still run at its end are killed."""

import subprocess
import unittest


class ProcessTestCase(unittest.TestCase):
    def start(self, command, environment=None, before=None):
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
