#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What runs leave behind that end in every way: kills, a full disk, a second process, a folder that is removed.

usage: tracked_runs_test.py TRACKED_RUN
"""

import csv
import json
import os
import pathlib
import resource
import shutil
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from process_test_case import ProcessTestCase

PROGRAM = sys.argv.pop(1)
LIMIT_S = 60
FLUSH_S = 0.05  # flush_interval_ms of the program


class TrackedRunTest(ProcessTestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel_tracked_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.run_folder = os.path.join(self.folder, "run")
        self.jsonl = os.path.join(self.run_folder, "metrics.jsonl")

    def start(self, trackers, *words, before=None):
        return super().start([PROGRAM, self.folder, trackers, *map(str, words)], before=before)

    def run_to_end(self, trackers, *words, **how):
        process = self.start(trackers, *words, **how)
        out, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, errors)
        return out, errors

    def lines(self):
        with open(self.jsonl, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def steps(self):
        return [line["step"] for line in self.lines() if line["type"] == "values"]

    def killed_at(self, step):
        """A run that is killed when it has logged this step; the steps that it said it has logged, with times."""
        process = self.start("jsonl,csv,tensorboard", 0, 1000000, "slow")
        logged = []
        while not logged or logged[-1][0] < step:
            logged.append((int(process.stdout.readline()), time.monotonic()))
        end = time.monotonic()
        process.send_signal(signal.SIGKILL)
        process.wait()
        rest = [int(line) for line in process.stdout.read().split("\n")[:-1]]
        return logged, end, rest

    def test_all_kinds_are_written(self):
        self.run_to_end("all", 0, 3, "all")
        kinds = [line["type"] for line in self.lines()]
        self.assertEqual(kinds, ["run", "config", "values", "values", "values", "values", "histogram", "image", "table",
                                 "figure", "artifact", "end"])
        values = self.lines()[5]
        self.assertEqual(values["values"], {"eval/accuracy": 0.75, "note": "two\nlines | \"quoted\" \u00e9", "flag": 1,
                                            "tokens": 1234567})
        self.assertEqual(values["step"], 3)
        self.assertLess(abs(values["time"] - time.time()), LIMIT_S)
        histogram, image, table, figure, artifact = self.lines()[6:11]
        self.assertEqual(sum(histogram["counts"]), 1000)
        self.assertEqual(len(histogram["edges"]), len(histogram["counts"]) + 1)
        self.assertEqual((image["width"], image["height"]), (6, 4))
        with open(os.path.join(self.run_folder, image["file"]), "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        self.assertEqual(table["rows"], [["why?", 0.5], ["a|b", 1]])
        with open(os.path.join(self.run_folder, figure["file"]), encoding="utf-8") as file:
            self.assertIn("<svg", file.read())
        self.assertTrue(os.path.isdir(os.path.join(self.run_folder, artifact["file"])))
        with open(os.path.join(self.run_folder, "metrics.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["loss"] for row in rows], ["1", "0.5", "0.3333333333333333", ""])
        self.assertEqual(rows[3]["note"], "two\nlines | \"quoted\" \u00e9")
        with open(os.path.join(self.run_folder, "config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["model"], {"layers": 2, "tied": False})
        self.assertFalse(os.path.exists(os.path.join(self.run_folder, ".run.lock")))

    def test_a_kill_loses_an_interval_at_most_and_the_run_goes_on(self):
        logged, end, rest = self.killed_at(500)
        with open(self.jsonl, "rb") as file:
            whole = file.read().rpartition(b"\n")[0]
        found = [json.loads(line).get("step") for line in whole.split(b"\n")][2:]
        self.assertEqual(found, list(range(len(found))))  # all in order, none broken
        # What was logged longer ago than an interval is there. The rest is for the thread to run on a busy machine.
        old = [step for step, at in logged if at < end - FLUSH_S - 1]
        if old:
            self.assertGreaterEqual(len(found), old[-1])
        self.assertGreater(len(found), 0)
        self.assertLessEqual(len(found), (rest[-1] if rest else logged[-1][0]) + 2)
        with open(self.jsonl, "ab") as file:
            file.write(b'{"type":"values","step":9999,"val')  # as a kill inside of a write leaves it
        next_step = len(found)
        self.run_to_end("jsonl,csv,tensorboard", next_step, next_step + 5)
        lines = self.lines()
        self.assertEqual(self.steps(), list(range(next_step + 5)))
        self.assertEqual([line["resumed"] for line in lines if line["type"] == "run"], [False, True])
        self.assertEqual(lines[-1]["status"], "finished")
        events = [name for name in os.listdir(self.run_folder) if name.startswith("events.out.tfevents.")]
        self.assertEqual(len(events), 2)
        with open(os.path.join(self.run_folder, "metrics.csv"), encoding="utf-8", newline="") as file:
            steps = [int(row["step"]) for row in csv.DictReader(file)]
        self.assertEqual(steps, sorted(steps))
        self.assertEqual(steps[-5:], list(range(next_step, next_step + 5)))

    def test_a_program_that_ends_without_a_word_keeps_what_is_an_interval_old(self):
        self.run_to_end("jsonl", 0, 200, "slow", "unfinished")
        steps = self.steps()
        self.assertEqual(steps, list(range(len(steps))))
        self.assertNotEqual(self.lines()[-1]["type"], "end")

    def test_a_program_that_returns_without_a_word_keeps_everything(self):
        self.run_to_end("jsonl,mlflow", 0, 200, "returns")
        self.assertEqual(self.steps(), list(range(200)))
        self.assertEqual(self.lines()[-1]["status"], "released")

    def test_a_second_process_is_told_who_has_the_run(self):
        first = self.start("jsonl", 0, 1000000, "slow")
        first.stdout.readline()
        second = self.start("csv", 0, 1)
        _, errors = second.communicate(timeout=LIMIT_S)
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"process {first.pid} writes to the run", errors)
        self.assertEqual(errors.count("\n"), 1)
        first.kill()
        first.wait()
        self.run_to_end("csv", 0, 1)  # the lock of one that is dead counts for nothing

    def test_a_full_disk_is_an_error_until_there_is_room(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))

        process = self.start("jsonl", 0, 100000, "slow", before=limit)
        error = process.stderr.readline()
        self.assertIn("tracker 'jsonl' cannot write: cannot write", error)
        self.assertIn("File too large", error)
        self.assertIn("metrics.jsonl", error)
        first_failed = int(process.stdout.readline())
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        while int(process.stdout.readline()) < first_failed + 300:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open(self.jsonl, "rb") as file:
            whole = file.read().rpartition(b"\n")[0]
        self.assertGreater(len(whole), 20000)
        found = [json.loads(line).get("step") for line in whole.split(b"\n")][2:]
        self.assertEqual(found, list(range(len(found))))  # nothing is lost, nothing is broken

    def test_a_disk_that_stays_full_does_not_stop_the_program(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        out, errors = self.run_to_end("jsonl", 0, 20000, before=limit)
        self.assertIn("File too large", errors)
        self.assertGreater(int(out.split("failed ")[1]), 0)
        self.assertLessEqual(os.path.getsize(self.jsonl), 20000)

    def test_a_folder_that_is_removed_is_made_anew(self):
        process = self.start("jsonl,csv,tensorboard", 0, 1000000, "slow")
        process.stdout.readline()
        deadline = time.monotonic() + LIMIT_S
        while not os.path.exists(self.jsonl) and time.monotonic() < deadline:
            time.sleep(0.01)
        shutil.rmtree(self.run_folder)
        table = os.path.join(self.run_folder, "metrics.csv")  # of the next tracker, so a moment later
        while (not (os.path.exists(table) and os.path.exists(self.jsonl) and os.path.getsize(self.jsonl) > 1000)
               and time.monotonic() < deadline):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open(self.jsonl, "rb") as file:
            lines = [json.loads(line) for line in file.read().rpartition(b"\n")[0].split(b"\n")]
        self.assertEqual(lines[0]["type"], "run")
        steps = [line["step"] for line in lines if line["type"] == "values"]
        self.assertEqual(steps, list(range(steps[0], steps[0] + len(steps))))
        self.assertTrue(os.path.exists(table))

    def test_a_folder_that_cannot_be_made_is_an_error(self):
        with open(self.run_folder, "w", encoding="utf-8"):
            pass
        process = self.start("jsonl", 0, 1)
        _, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("cannot make the folder", errors)


if __name__ == "__main__":
    unittest.main()
