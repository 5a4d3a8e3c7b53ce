#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the variable ACCEL_LOG shows of programs: log_variable_test.py LAUNCHER HELLO CHECKPOINT LOG_PROGRAM [unittest argument ...]

HELLO and CHECKPOINT are examples, LOG_PROGRAM is built of log_program.c.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LAUNCHER, HELLO, CHECKPOINT, LOG_PROGRAM = sys.argv[1:5]
LINE = re.compile(r"accel \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error)(?: rank (\d+))?: (.+)")
SECONDS = 60


def run(*command, log=None, **variables):
    environment = {**os.environ, "ACCELERATE_USE_CPU": "1", **variables}
    environment.pop("ACCEL_LOG", None)
    if log is not None:
        environment["ACCEL_LOG"] = log
    return subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)


class LogVariable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-log-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "of a run.log"

    def parse(self, text):
        """Level, rank and text of each line."""
        lines = [LINE.fullmatch(line) for line in text.splitlines()]
        self.assertTrue(text.endswith("\n") and all(lines), text)
        return [line.groups() for line in lines]

    def assert_done(self, done, output=None):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        if output is not None:
            self.assertEqual(done.stdout, output)
        return done

    def test_nothing_is_printed_unasked(self):
        for log in (None, "ERROR", "off:" + str(self.file)):
            with self.subTest(log=log):
                self.assertEqual(self.assert_done(run(HELLO, log=log), "[0]\n").stderr, "")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_life_of_a_run(self):
        lines = self.parse(self.assert_done(run(HELLO, log="Info"), "[0]\n").stderr)
        self.assertEqual({level for level, _, _ in lines}, {"info"})
        texts = [text for _, _, text in lines]
        self.assertRegex(texts[0], r"^libaccel \d+\.\d+\.\d+ is /.*, LibTorch \d+\.\d+\.\d+ is /.*libtorch_cpu\.so$")
        self.assertRegex(texts[1], r"^rank 0 of 1 has joined: device cpu, threads \d+, on host .")
        self.assertEqual(texts[2:], ["rank 0 has ended its training"])
        self.assertEqual([rank for _, rank, _ in lines], [None, "0", "0"])

    def test_checkpoints(self):
        self.assert_done(run(CHECKPOINT, self.folder / "made", log=f"info:{self.file}"))
        texts = [text for _, _, text in self.parse(self.file.read_text())]
        for done in ("saved in", "loaded from"):
            self.assertTrue(any(f"the training state is {done} '{self.folder}" in text for text in texts), texts)

    def test_all_processes_of_a_job_share_a_file(self):
        self.file.write_text("accel 2026-01-01T00:00:00.000Z info: kept\n")
        done = run(LAUNCHER, "launch", "--num-processes", 2, "--", HELLO, log=f"info:{self.file}")
        self.assertEqual(self.assert_done(done, "[0,1]\n").stderr, "")
        lines = self.parse(self.file.read_text())
        self.assertEqual(lines[0][2], "kept")
        for rank in "01":
            own = [text for _, said_by, text in lines if said_by == rank]
            self.assertTrue(any(re.match(rf"rank {rank} of 2 meets the others at 127\.0\.0\.1:\d+$", text) for text in own), own)
            self.assertTrue(any(re.match(r"the plugin .*libaccel_ucx\.so is loaded$", text) for text in own), own)
            self.assertTrue(any(text.startswith(f"rank {rank} of 2 has joined: device cpu, collectives by ") for text in own), own)
        launcher = [text for _, said_by, text in lines if said_by is None]
        for rank in "01":
            self.assertTrue(any(re.match(rf"rank {rank} is process \d+$", text) for text in launcher), launcher)
            self.assertIn(f"rank {rank} has ended with exit status 0", launcher)

    def test_embedded_is_named(self):
        lines = self.parse(run(HELLO, log="info", ACCEL_EMBEDDED="1").stderr)
        self.assertTrue(any(", embedded, on host " in text for _, _, text in lines), lines)

    def test_errors_of_calls_at_debug(self):
        done = run(HELLO, log="debug", ACCELERATE_MIXED_PRECISION="fp12")
        self.assertEqual(done.returncode, 1)
        *logged, printed = done.stderr.splitlines()
        failed = [text for level, _, text in self.parse("\n".join(logged) + "\n") if level == "debug"]
        self.assertEqual(failed[-1], f"accel_state_create: ACCEL_ERROR_INVALID_ARGUMENT: {printed}")
        quiet = run(HELLO, log="warning", ACCELERATE_MIXED_PRECISION="fp12")
        self.assertEqual(quiet.stderr, printed + "\n")

    def test_whole_lines_of_many_processes_and_threads(self):
        processes, threads, calls = 3, 4, 200
        environment = {**os.environ, "ACCEL_LOG": f"debug:{self.file}"}
        started = [subprocess.Popen([LOG_PROGRAM, f"process{i}", str(threads), str(calls)], env=environment, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(processes)]
        for process in started:
            output, errors = process.communicate(timeout=SECONDS)
            self.assertEqual((process.returncode, output, errors), (0, "0\n", ""))
        lines = self.parse(self.file.read_text())
        named = {match[0] for _, _, text in lines for match in [re.search(r"process\d::thread\d_call\d+", text)] if match}
        self.assertEqual(named, {f"process{i}::thread{thread}_call{call}" for i in range(processes) for thread in range(threads)
                                 for call in range(calls)})
        self.assertEqual(sum("was forked off" in text for _, _, text in lines), processes)
        self.assertEqual(len(lines), processes * (threads * calls + 1))

    def test_a_wrong_value_is_one_line(self):
        missing = self.folder / "missing" / "run.log"
        for log, words in (("verbose", "is 'verbose'; expected debug, info, warning, error or off"),
                           ("info:", "is 'info:'; expected"), (":run.log", "is ':run.log'; expected"),
                           (f"info:{missing}", f"names the file '{missing}', which cannot be opened: No such file or directory"),
                           (f"info:{self.folder}", "which cannot be opened: Is a directory")):
            for command in ([HELLO], [LAUNCHER, "launch", "--num-processes", 1, "--", "true"]):
                if command == [HELLO] and log != "verbose":
                    continue  # one is enough of what loads LibTorch
                with self.subTest(log=log, command=command):
                    errors = self.assert_done(run(*command, log=log)).stderr
                    self.assertEqual(errors.count("\n"), 1, errors)
                    self.assertTrue(errors.startswith("accel: ACCEL_LOG ") and words in errors, errors)

    def test_a_reader_that_is_gone_does_not_end_the_program(self):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([HELLO], env={**os.environ, "ACCELERATE_USE_CPU": "1", "ACCEL_LOG": "info"}, stdout=subprocess.PIPE,
                              stderr=write, text=True, timeout=SECONDS, check=False)
        os.close(write)
        self.assertEqual((done.returncode, done.stdout), (0, "[0]\n"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
