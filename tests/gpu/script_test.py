#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The script itself, with steps that are toys: limits, outcomes, what is there when it is stopped, arguments that are wrong."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import bundles
import run
import steps as real_steps
from step_process import StepProcess

# In the place of tools/gpu/steps.py: one step a phase, which prints a line and then waits for a file.
TOY_STEPS = """
import sys
from real_steps import Context, Step
def command(context):
    return [sys.executable, "-c", "import os, sys, time\\nprint('first line', flush=True)\\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.01)\\n"]
def steps_on(kind):
    return [Step(f"toy_{phase}", "toys", 100, command, phase) for phase in ("first", "check", "alone", "speed")]
"""
START = "import sys; sys.path[:0] = {paths!r}; import steps; import run; sys.argv = {arguments!r}; sys.exit(run.main())"


def wait_until(condition, what, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen in {seconds} s"
        time.sleep(0.02)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-script-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class OneStep(Folder):
    def outcome(self, script, limit=30, name="toy"):
        """(outcome, reason, seconds, figures) of a step that is a shell script, and its lines in the log."""
        context = real_steps.Context(self.folder, {}, self.folder, self.folder, self.folder, "cpu", dict(os.environ))
        lines = []
        step = real_steps.Step(name, "toys", limit, lambda _: ["sh", "-c", script])
        process = StepProcess(step, context, limit, lambda _, line: lines.append(line))
        process.start()
        return *process.wait(), lines

    def test_outcomes(self):
        for number, (script, expected, reason) in enumerate((
                ("echo fine", "passed", "fine"), ("echo no card; exit 77", "not run", "no card"),
                ("echo 'Error: the loss is 3'; echo more; exit 4", "failed", "status 4: Error: the loss is 3"),
                ("echo '[  PASSED  ] 3 tests.'", "passed", ""), ("echo '[  PASSED  ] 0 tests.'", "failed", "no test ran"),
                ("echo '[  SKIPPED ] A.B (0 ms)'; echo '[  PASSED  ] 0 tests.'", "not run", "skipped: A.B (0 ms)"),
                ("echo 'Ran 4 tests in 0.1s'; echo OK", "passed", ""), ("echo 'Ran 4 tests in 0.1s'; echo 'OK (skipped=3)'", "passed", ""),
                ("echo 'Ran 4 tests in 0.1s'; echo 'OK (skipped=4)'", "not run", "all tests were skipped"),
                ("echo 'Ran 0 tests in 0.1s'; echo OK", "failed", "no test ran"),
                ("kill -SEGV $$", "failed", "status -11"))):
            with self.subTest(script):
                outcome, said, _, _, _ = self.outcome(script, name=f"toy{number}")
                self.assertEqual(outcome, expected)
                self.assertIn(reason, said)

    def test_figures(self):
        *_, figures, lines = self.outcome("""echo '{"figure": "copy", "ms": 2.5}'; echo '{"no'; echo text""")
        self.assertEqual(figures, [{"figure": "copy", "ms": 2.5}])
        self.assertEqual(lines, ['{"figure": "copy", "ms": 2.5}', '{"no', "text"])

    def test_a_step_that_takes_too_long_leaves_no_process(self):
        script = f"trap '' TERM; (setsid -w true; exec sleep 1000) & echo $! >{self.folder}/child; sh -c 'trap \"\" TERM; sleep 1000' & echo $! >>{self.folder}/child; wait"
        outcome, reason, seconds, *_ = self.outcome(script, limit=1)
        self.assertEqual(outcome, "failed")
        self.assertIn("it took longer than 1 s", reason)
        self.assertLess(seconds, 20)
        for pid in (self.folder / "child").read_text().split():
            wait_until(lambda pid=pid: not alive(int(pid)), f"the end of process {pid}", 5)

    def test_a_log_that_is_too_long_has_its_end(self):
        outcome, *_, lines = self.outcome("i=0; while [ $i -lt 3000 ]; do echo \"$i ................................................................................................\"; i=$((i+1)); done; echo the end")
        self.assertEqual(outcome, "passed")
        self.assertLess(sum(map(len, lines)), 300_000)
        self.assertEqual((lines[0][:2], lines[-1]), ("0 ", "the end"))


def alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Whole(Folder):
    def setUp(self):
        super().setUp()
        self.bundle, self.out = self.folder / "bundle", self.folder / "out"
        (self.bundle / "bin").mkdir(parents=True)
        torch = self.folder / "torch"
        torch.mkdir()
        (torch / "version.py").write_text("__version__ = '2.13.0+cpu'\n")
        facts = {"torch": "2.13.0", "python": ".".join(map(str, sys.version_info[:2])), "commit": "0123456789abcdef", "date": "2026-01-01", "libraries": []}
        (self.bundle / "bundle.json").write_text(json.dumps(facts))
        toys = self.folder / "toys"
        toys.mkdir()
        (toys / "steps.py").write_text(TOY_STEPS)
        (toys / "real_steps.py").symlink_to(bundles.GPU / "steps.py")
        self.paths = [str(toys), str(bundles.GPU)]
        self.environment = {**os.environ, "LIBTORCH": str(torch), "DEVICE": "cpu", "GO": str(self.folder / "go"), "TMPDIR": str(self.folder)}

    def start(self, *arguments, **variables):
        script = START.format(paths=self.paths, arguments=["run.py", *map(str, arguments)])
        return subprocess.Popen([sys.executable, "-B", "-c", script], env={**self.environment, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def refusal(self, *arguments, **variables):
        process = self.start(*arguments, **variables)
        _, said = process.communicate()
        self.assertEqual(process.returncode, 2, said)
        return said

    def log(self):
        return (self.out / "steps.log").read_text() if (self.out / "steps.log").exists() else ""

    def test_all_steps_run_and_nothing_stays(self):
        (self.folder / "go").touch()
        process = self.start(self.bundle, self.out, 60)
        said, errors = process.communicate()
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertIn("4 passed, 0 failed, 0 not run", said)
        self.assertEqual([result["outcome"] for result in bundles.results(self.out).values()], ["passed"] * 4)
        self.assertEqual(list(self.folder.glob("accel-gpu-*")), [])

    def test_stopped_in_each_phase(self):
        for phase in ("first", "check", "alone", "speed"):
            with self.subTest(phase):
                self.stop_in(phase)

    def stop_in(self, phase):
        """The steps before the phase end at once; the one of the phase waits."""
        toys = pathlib.Path(self.paths[0], "steps.py")
        toys.write_text(TOY_STEPS.replace("def command(context):", f"def wait(context): return command(context)\ndef quick(context): return ['echo', 'quick']\ndef command(context):")
                        .replace("100, command, phase)", f"100, wait if phase == {phase!r} else quick, phase)"))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            process = self.start(self.bundle, self.out, 60)
            wait_until(lambda: f"toy_{phase}| first line" in self.log(), f"the step of {phase}")
            process.send_signal(number)
            process.communicate(timeout=30)
            summary = (self.out / "summary.txt").read_text()
            before = ("first", "check", "alone", "speed").index(phase)
            results = bundles.results(self.out)
            self.assertEqual([results[f"toy_{name}"]["outcome"] for name in ("first", "check", "alone", "speed")[:before]], ["passed"] * before)
            if number == signal.SIGKILL:
                self.assertIn("running, or stopped", summary)
                (self.folder / "go").touch()  # ends what the killed script left
                time.sleep(0.1)
                (self.folder / "go").unlink()
            else:
                self.assertIn(f"stopped by {number.name}", summary)
                self.assertEqual(results[f"toy_{phase}"]["outcome"], "failed")
                self.assertIn(f"toy_{phase}", summary)
                left = {result["reason"] for result in list(results.values())[before + 1:]}
                self.assertEqual((len(results), left), (4, {"the script was stopped before it"} if phase != "speed" else set()))
                self.assertEqual(list(self.folder.glob("accel-gpu-*")), [])
            for file in self.out.iterdir():
                file.unlink()
            for left in self.folder.glob("accel-gpu-*"):
                subprocess.run(["rm", "-rf", left], check=True)

    # Regression: a second signal to the GPU script left its steps running, and the summary without them.
    def test_stopped_again_while_it_ends_its_steps(self):
        toys = pathlib.Path(self.paths[0], "steps.py")
        toys.write_text(TOY_STEPS.replace("import os, sys, time", "import os, signal, sys, time\\nsignal.signal(signal.SIGTERM, lambda *_: print('stays', flush=True))"))
        process = self.start(self.bundle, self.out, 60)
        wait_until(lambda: "toy_first| first line" in self.log(), "the first step")
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "toy_first| stays" in self.log(), "the end of the first step")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1)
        self.assertIn("stopped by SIGINT", (self.out / "summary.txt").read_text())
        self.assertEqual(bundles.results(self.out)["toy_first"]["outcome"], "failed")
        self.assertEqual(list(self.folder.glob("accel-gpu-*")), [])

    def test_stopped_before_its_first_step(self):
        """While it unpacks a program, which here is a pipe that nobody writes into."""
        os.mkfifo(self.bundle / "bin/program.gz")
        process = self.start(self.bundle, self.out, 60)
        wait_until(lambda: list(self.folder.glob("accel-gpu-*/bin")), "the unpacking")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1)
        self.assertIn("stopped by SIGTERM", (self.out / "summary.txt").read_text())
        self.assertEqual(list(self.folder.glob("accel-gpu-*")), [])

    # Regression: a program that could not be started ended a worker of the GPU script without a word, and the script with status
    # 0.
    def test_a_program_that_cannot_be_started_fails_its_step_alone(self):
        (self.folder / "go").touch()
        toys = pathlib.Path(self.paths[0], "steps.py")
        for name, mode in (("missing", None), ("locked", 0o644)):
            with self.subTest(name):
                program = self.bundle / "bin" / name
                if mode is not None:
                    program.touch(mode)
                toys.write_text(TOY_STEPS + f"toys = steps_on\ndef steps_on(kind):\n    return [Step('toy_{name}', 'toys', 100, lambda _: [{str(program)!r}], 'alone'), *toys(kind)]\n")
                process = self.start(self.bundle, self.out, 60)
                said, errors = process.communicate()
                self.assertEqual((process.returncode, errors), (1, ""))
                self.assertIn("4 passed, 1 failed, 0 not run", said)
                result = bundles.results(self.out)[f"toy_{name}"]
                self.assertEqual(result["outcome"], "failed")
                self.assertIn(f"bin/{name}", result["reason"])

    def test_what_a_former_run_left(self):
        self.out.mkdir()
        for name in ("steps.log", "results.jsonl", "summary.txt", "trace.json.gz", "peer_tests.json", "mine.txt"):
            (self.out / name).write_text("of a former run")
        (self.folder / "go").touch()
        self.start(self.bundle, self.out, 60).communicate()
        self.assertEqual(sorted(file.name for file in self.out.iterdir()), ["mine.txt", "results.jsonl", "steps.log", "summary.txt"])

    def test_a_bundle_that_cannot_be_unpacked(self):
        (self.bundle / "bin/program.gz").write_text("not packed")
        self.assertIn("bin/program.gz cannot be unpacked", self.refusal(self.bundle, self.out, 60))
        self.assertEqual(list(self.folder.glob("accel-gpu-*")), [])

    # Regression: the GPU script dropped the machine's `LD_LIBRARY_PATH`, by which a container may name the driver's libraries.
    def test_the_libraries_of_the_machine_are_found(self):
        """A container may name the folder of the driver's libraries by LD_LIBRARY_PATH alone."""
        (self.folder / "go").touch()
        toys = pathlib.Path(self.paths[0], "steps.py")
        toys.write_text(TOY_STEPS.replace("print('first line', flush=True)", "print(os.environ['LD_LIBRARY_PATH'], flush=True)"))
        self.start(self.bundle, self.out, 60, LD_LIBRARY_PATH="/opt/driver/lib64").communicate()
        folders = self.log().splitlines()[0].partition("| ")[2].split(":")
        self.assertEqual((folders[0], folders[-1]), (str(self.bundle / "lib"), "/opt/driver/lib64"))

    def test_no_longer_than_its_seconds(self):
        toys = pathlib.Path(self.paths[0], "steps.py")
        toys.write_text(TOY_STEPS.replace("100, command, phase)", "100, command, 'speed')"))
        began = time.monotonic()
        process = self.start(self.bundle, self.out, 20)
        said, _ = process.communicate()
        self.assertLess(time.monotonic() - began, 22)
        self.assertEqual(process.returncode, 1)
        self.assertIn("it took longer than", said)
        self.assertIn("no time is left", said)

    def test_arguments_that_are_wrong(self):
        nothing = self.folder / "nothing"
        nothing.mkdir()
        for arguments, variables, expected in (
                ([], {}, "expected BUNDLE OUT [SECONDS]"), ([nothing, self.out], {}, f"{nothing} is not a bundle"),
                ([self.bundle, self.out, "5"], {}, "SECONDS 5 is too small: expected at least 20"),
                ([self.bundle, self.out, "soon"], {}, "SECONDS soon: expected a whole number"),
                ([self.bundle, self.bundle / "bundle.json", "60"], {}, "cannot be written"),
                ([self.bundle, "/proc/out", "60"], {}, "OUT /proc/out cannot be written"),
                ([self.bundle, self.out, "60"], {"DEVICE": "tpu"}, "DEVICE=tpu: expected cuda, cpu or sim"),
                ([self.bundle, self.out, "60"], {"LIBTORCH": str(nothing)}, "is not a LibTorch")):
            with self.subTest(expected):
                self.assertIn(expected, self.refusal(*arguments, **variables))

    def test_the_steps_have_names_of_their_own(self):
        for kind in ("cuda", "cpu", "sim"):
            names = [step.name for step in real_steps.steps_on(kind)]
            self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({step.phase for step in real_steps.steps_on("cuda")}, set(run.PHASES))


if __name__ == "__main__":
    unittest.main()
