#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces of several ranks, and `accel profile`: profiler_test.py ACCEL PROFILED_PROGRAM [unittest argument ...]"""

import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ACCEL = PROGRAM = ""
SECONDS = 100
# What Perfetto needs of an event by its phase.
NEEDED = {"X": {"name", "pid", "tid", "ts", "dur"}, "M": {"name", "pid", "args"}, "i": {"name", "ts"},
          "s": {"id", "pid", "tid", "ts"}, "t": {"id", "pid", "tid", "ts"}, "f": {"id", "pid", "tid", "ts"}}


def read_events(path):
    """The events of a trace, each checked."""
    opened = gzip.open(path, "rt") if str(path).endswith(".gz") else open(path, encoding="utf-8")
    with opened as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    for event in events:
        missing = NEEDED[event["ph"]] - event.keys()
        assert not missing, f"{event} lacks {missing}"
        assert isinstance(event["name"] if event["ph"] == "X" else "", str)
        if event["ph"] == "X":
            assert event["dur"] >= 0, event
    return trace, events


def named(events, name, **members):
    return [event for event in events if event.get("name") == name
            and all(event.get(key) == value for key, value in members.items())]


def assert_nested(events):
    """Spans of one thread lie within each other or beside each other: a viewer could not draw anything else."""
    tracks = {}
    for event in events:
        if event["ph"] == "X" and event.get("cat") == "accel":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], -event["dur"], event))
    for track in tracks.values():
        open_until = []
        for begin, negative, event in sorted(track, key=lambda entry: entry[:2]):
            while open_until and open_until[-1] <= begin + 0.0011:  # times have nanoseconds
                open_until.pop()
            assert not open_until or begin - negative <= open_until[-1] + 0.0011, event
            open_until.append(begin - negative)


class ProfilerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-profiler-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        temporary = tempfile.TemporaryDirectory(prefix="accel-profiler-")
        self.addCleanup(temporary.cleanup)
        self.temporary = pathlib.Path(temporary.name)

    # Regression: a program profiled by `accel profile` left its raw trace in the folder of temporary files, once for each rank.
    def tearDown(self):
        self.assertEqual([path.name for path in self.temporary.glob("accel-trace-*")], [], "left behind")

    def run_program(self, *command, status=0, **variables):
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=SECONDS, check=False,
                                stdin=subprocess.DEVNULL, cwd=self.folder, env={**os.environ, "TMPDIR": str(self.temporary), **variables})
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def launch(self, ranks):
        return [ACCEL, "launch", "--cpu", "--num-processes", ranks, "--", PROGRAM]

    def test_ranks_are_merged_on_one_clock(self):
        result = self.run_program(*self.launch(4), 4, "profile", self.folder / "traces")
        self.assertEqual(result.stderr, "")
        names = sorted(path.name for path in (self.folder / "traces").iterdir())
        self.assertEqual(names, [f"profile_{rank}.json" for rank in range(4)] + ["profile_merged.json"])
        for rank in range(4):
            trace, events = read_events(self.folder / f"traces/profile_{rank}.json")
            assert_nested(events)
            ours = trace["accel"]
            self.assertEqual((ours["rank"], ours["world_size"], ours["dropped_spans"]), (rank, 4, 0))
            self.assertEqual(ours["step_report"]["steps"] >= 3, True)
            self.assertTrue(ours["flight_record"]["operations"])
            # One host has one clock, which is measured nevertheless.
            self.assertEqual(ours["clock"]["round_trip_ns"] > 0, rank > 0)
            self.assertLessEqual(abs(ours["clock"]["offset_ns"]), max(ours["clock"]["round_trip_ns"], 0))
        merged, events = read_events(self.folder / "traces/profile_merged.json")
        self.assertEqual([rank["rank"] for rank in merged["accel"]["ranks"]], [0, 1, 2, 3])
        self.assertEqual({event["pid"] for event in events}, {0, 1, 2, 3})
        assert_nested(events)
        self.assertEqual(len(named(events, "process_name")), 4)
        for rank in range(4):
            of_rank = [event for event in events if event["pid"] == rank]
            self.assertTrue(named(of_rank, "aten::addmm"))
            self.assertEqual(len(named(of_rank, "a step of the program")), 4)
            for part in ("data", "forward", "backward", "optimizer", "step"):
                self.assertTrue(named(of_rank, part, cat="accel"), part)
            reduced = named(of_rank, "all_reduce", cat="accel")
            self.assertGreaterEqual(len(reduced), 4)
            self.assertEqual({(event["args"]["ranks"], event["args"]["kind"]) for event in reduced}, {(4, "collective")})
            self.assertTrue(all(event["args"]["bytes"] > 0 for event in reduced))
        # A collective ends on no rank before it has begun on all.
        calls = {}
        for event in named(events, "all_reduce", cat="accel"):
            calls.setdefault((event["args"]["group"], event["args"]["sequence"]), []).append(event)
        complete = [call for call in calls.values() if len(call) == 4]
        self.assertGreaterEqual(len(complete), 4)
        slack = 2000  # microseconds, for the error of the clocks
        for call in complete:
            last_begin = max(event["ts"] for event in call)
            self.assertTrue(all(event["ts"] + event["dur"] >= last_begin - slack for event in call), call)
        arrows = [event for event in events if event["ph"] in "stf" and event["cat"] == "accel"]
        by_id = {}
        for event in arrows:
            by_id.setdefault(event["id"], []).append(event["ph"])
        self.assertGreaterEqual(len(by_id), len(complete))
        self.assertIn(sorted("sttf"), [sorted(phases) for phases in by_id.values()])
        for phases in by_id.values():
            self.assertEqual((phases.count("s"), phases.count("f")), (1, 1))
        # The arrows of LibTorch, from a forward to its backward, stay within a rank.
        of_torch = {}
        for event in events:
            if event["ph"] in "stf" and event["cat"] != "accel":
                of_torch.setdefault((event["cat"], event["name"], event["id"]), set()).add(event["pid"])
        self.assertTrue(of_torch)
        self.assertEqual({len(ranks) for ranks in of_torch.values()}, {1})

    def profile(self, *arguments, status=0, **variables):
        return self.run_program(ACCEL, "profile", *arguments, status=status, **variables)

    def test_a_program_is_profiled_without_a_change(self):
        result = self.profile("--", PROGRAM, 12)
        self.assertIn("aten::", result.stdout)
        self.assertIn("forward", result.stdout)
        self.assertIn("Open " + str(self.folder / "accel-profile/profile_0.json") + " at https://ui.perfetto.dev", result.stdout)
        trace, events = read_events(self.folder / "accel-profile/profile_0.json")
        # Three steps are skipped and five recorded.
        self.assertEqual(trace["accel"]["steps"], {"first": 3, "end": 8})
        for part in ("step", "data", "forward", "backward"):
            self.assertEqual(len(named(events, part, cat="accel")), 5, part)
        self.assertEqual(len(named(events, "a step of the program")), 5)
        assert_nested(events)

    def test_the_schedule_is_an_option_and_the_report_json(self):
        (self.folder / "out").mkdir()
        (self.folder / "out/profile_7.json").write_text("of an older run")
        result = self.profile("--steps", 2, "--skip", 1, "--memory", "--shapes", "--modules", "--output", "out", "--json",
                              "--", *self.launch(2), 6)
        report = json.loads(result.stdout)
        self.assertEqual((report["status"], len(report["traces"]), len(report["ranks"])), (0, 2, 2))
        self.assertEqual([rank["steps"] for rank in report["ranks"]], [{"first": 1, "end": 3}] * 2)
        self.assertIn("aten::addmm", {row["name"] for row in report["ranks"][1]["averages"]})
        _, events = read_events(report["merged"])
        self.assertEqual({event["pid"] for event in events}, {0, 1})
        self.assertTrue(named(events, "[memory]"))
        self.assertTrue([event for event in events if event.get("args", {}).get("kind") == "module"])
        self.assertIn("Input Dims", named(events, "aten::addmm")[0]["args"])

    def test_a_short_program_is_recorded_from_its_beginning(self):
        self.profile("--", PROGRAM, 2)
        trace, events = read_events(self.folder / "accel-profile/profile_0.json")
        self.assertEqual(trace["accel"]["steps"]["first"], 0)
        self.assertEqual(len(named(events, "step", cat="accel")), 2)

    def test_a_program_that_fails_keeps_its_status_and_its_trace(self):
        self.profile("--", PROGRAM, 2, "fail", status=3)
        _, events = read_events(self.folder / "accel-profile/profile_0.json")
        self.assertTrue(named(events, "forward", cat="accel"))

    def test_threads_that_write_checkpoints_are_there(self):
        self.profile("--skip", 0, "--steps", 100, "--", PROGRAM, 4, "checkpoint", self.folder / "saved")
        _, events = read_events(self.folder / "accel-profile/profile_0.json")
        written = named(events, "write checkpoint", cat="accel")
        self.assertEqual(len(written), 1)
        self.assertEqual(written[0]["args"]["kind"], "checkpoint")
        self.assertNotEqual(written[0]["tid"], named(events, "aten::addmm")[0]["tid"])
        self.assertTrue(named(events, "copy state", cat="accel"))

    # Regression: a program that ended while it was profiled, say by the `exit()` of an error, crashed.
    def test_a_program_may_end_while_it_records(self):
        result = self.run_program(PROGRAM, 2, "leave", self.folder / "traces", status=3)
        self.assertEqual(result.stderr, "")

    def test_a_program_that_profiles_itself_is_told(self):
        result = self.profile("--", PROGRAM, 2, "profile", self.folder / "own", status=1)
        self.assertIn("a profiler records in this process already", result.stderr)

    def test_what_cannot_be_profiled_is_said(self):
        result = self.profile("--", PROGRAM, 0, "nothing", status=1)
        self.assertIn("nothing was recorded: the program made no state", result.stderr)
        self.profile("--", "sh", "-c", "exit 5", status=5)
        result = self.profile("--", self.folder / "missing", status=127)
        self.assertIn("cannot run", result.stderr)
        result = self.profile("--", self.folder, status=126)
        result = self.profile(status=2)
        self.assertIn("there is no program", result.stderr)
        self.profile("--steps", 0, "--", "true", status=2)
        self.profile("--skip", -1, "--", "true", status=2)
        (self.folder / "file").write_text("")
        result = self.profile("--output", "file", "--", "true", status=1)
        self.assertIn("--output: ", result.stderr)
        self.assertIn("--steps N", self.profile("--help").stdout)

    def test_a_signal_reaches_the_program(self):
        process = subprocess.Popen([ACCEL, "profile", "--", "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder, text=True)
        self.assertEqual(process.stdout.readline(), "up\n")
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 9, error)


if __name__ == "__main__":
    ACCEL, PROGRAM = (os.path.abspath(argument) for argument in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
