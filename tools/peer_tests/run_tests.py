#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Accelerate's own tests with the package accel in its place.

tests/peer/baseline.txt has the tests that Accelerate passes itself on a machine without GPU and network; the others count for nobody.
tests/peer/passing.txt has those that pass here, and is only added to; tests/peer/reasons.txt says why the others do not; tests/peer/notes.md
stands at the end of the page.
Runs in the Python of `tools/setup.sh --torch`, or in $ACCEL_PEER_PYTHON. Exit status: 0; 1 when a test of passing.txt fails or one that
fails has no reason; 77 when something is not installed.
"""

import argparse
import importlib.util
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings" / "python" / "tests"))
import warm_start

LISTS = ROOT / "tests" / "peer"
SCRIPTS = ("test_script", "test_sync", "test_ops", "test_distributed_data_loop", "test_notebook", "test_merge_weights",
           "external_deps/test_checkpointing", "external_deps/test_metrics", "external_deps/test_performance")
IMPORTS = "import torch._dynamo, transformers, pytest"  # of most files, several seconds; none that calls the engine
TESTS_IN_SCRIPTS = ("scripts/test_notebook",)  # whose functions are tests
# What some need in their environment: two ranks; a launcher that is not told ACCELERATE_USE_CPU, which Accelerate's does not read.
ENVIRONMENTS = {"scripts/test_notebook": {"ACCELERATE_NUM_PROCESSES": "2", "ACCEL_TIMEOUT_MS": "20000"}, "test_cli": {"ACCELERATE_USE_CPU": "false"}}


def lines_of(name):
    return [line for line in (LISTS / name).read_text().splitlines() if line and not line.startswith("#")]


def file_of(test):
    return test.partition("::")[0]


class Runner:
    def __init__(self, source, build, folder, seconds):
        self.source, self.seconds, self.folder = source, seconds, pathlib.Path(folder)
        program = self.folder / "accelerate"
        program.write_text(f'#!/bin/sh\nexec "{build}/src/cli/accel" "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        here = pathlib.Path(__file__).parent
        path = [here / "alias", here, build / "bindings" / "python", os.environ.get("PYTHONPATH", "")]
        self.environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(str(entry) for entry in path if str(entry)), "ACCEL_PEER_SOURCE": str(source),
            "ACCEL_PEER_OUTCOMES": str(self.folder / "outcomes"), "PATH": os.pathsep.join([folder, os.path.dirname(sys.executable), os.environ["PATH"]]),
            "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": folder}  # where torchrun leaves its logs
        self.environment.setdefault("ACCEL_PLUGIN_PATH", str(build / "src" / "comm" / "ucx"))
        os.environ.update(self.environment)  # where the process that does the imports gets it from

    def run(self, name):
        """The outcome of each test of a file, or of a script with one rank and with two."""
        if name in TESTS_IN_SCRIPTS:
            outcomes = self._tests(f"src/accelerate/test_utils/{name}.py", ENVIRONMENTS.get(name, {}))
            return {f"{name}::{test.rsplit('::', 1)[1]}": outcome for test, outcome in outcomes.items()}
        if name.startswith("scripts/"):
            return {f"{name}::{ranks}": self._script(name, ranks) for ranks in (1, 2)}
        return self._tests(f"tests/{name}.py", ENVIRONMENTS.get(name, {}))

    def _tests(self, path, environment):
        """The outcome of each test of a file that pytest runs."""
        outcomes = self.folder / "outcomes"
        outcomes.unlink(missing_ok=True)
        program = importlib.util.find_spec("pytest.__main__").origin
        process = warm_start.WarmProcess(0, IMPORTS, [program, "-q", "-p", "no:cacheprovider", "-p", "outcomes", "--timeout", self.seconds, path],
                                         {**self.environment, **environment}, self.source, self.folder)
        try:
            self._output = "".join(process.communicate(40 * self.seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            self._output = f"{path} took more than {40 * self.seconds} s"
        pairs = [line.rsplit(" ", 1) for line in outcomes.read_text().splitlines()] if outcomes.exists() else []
        return dict(pairs)

    def last_output(self):
        """What the tests of the last file, or its script, wrote: pytest's account of each failure."""
        return self._output

    def _script(self, name, ranks):
        path = str(self.source / "src" / "accelerate" / "test_utils" / f"{name}.py")
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
        try:
            ended = subprocess.run([sys.executable, *torchrun, path], cwd=self.source, env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", timeout=4 * self.seconds, check=False)
        except subprocess.TimeoutExpired:
            self._output = f"{path} took more than {4 * self.seconds} s"
            return "failed"
        self._output = ended.stdout
        return "passed" if ended.returncode == 0 else "failed"


def reason_of(test, reasons):
    """The reason with the longest beginning of the test's name."""
    fitting = [(len(beginning), reason) for beginning, reason in reasons if test.startswith(beginning)]
    return max(fitting)[1] if fitting else None


def report(files, baseline, outcomes, reasons):
    """docs/peer_tests.md."""
    rows, why = [], []
    for name in files:
        wanted = [test for test in baseline if file_of(test) == name]
        passed = [test for test in wanted if outcomes.get(test) == "passed"]
        others = [test for test in outcomes if file_of(test) == name and test not in wanted]
        if wanted or others:
            rows.append(f"| {name} | {len(passed)} | {len(wanted) - len(passed)} | {len(others)} |")
        why += [f"| `{test}` | {reason_of(test, reasons) or ''} |" for test in wanted if test not in passed]
    good = sum(outcomes.get(test) == "passed" for test in baseline)
    return "\n".join([
        "# Accelerate's own tests", "",
        "Accelerate 1.15.0 comes with its tests. `tools/peer_tests.sh` runs them with this package in the place of Accelerate, in the tests and in",
        "all processes that they start, and writes this page. The tests that count are those that Accelerate itself passes on a machine with two",
        "processors, without a GPU and without a network (`tests/peer/baseline.txt`). The tests that pass are a suite of the test run, `peer`, which",
        "is skipped where torch or the archive are not installed.", "",
        f"{good} of {len(baseline)} tests pass ({100 * good // len(baseline)} %).", "",
        "| file | passed | failed | not applicable |", "| --- | --- | --- | --- |", *rows, "",
        "Not applicable: skipped, or failing with Accelerate too, since it needs a GPU, a hub or a package.", "",
        "## Tests that do not pass", "", "| test | reason |", "| --- | --- |", *why, "", (LISTS / "notes.md").read_text()])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, default=ROOT / "build" / "peer" / "accelerate-1.15.0", help="the unpacked archive")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("ACCEL_BUILD", ROOT / "build" / "release")))
    parser.add_argument("--report", type=pathlib.Path, help="write the page; needs a run of all files")
    parser.add_argument("--seconds", type=int, default=120, help="for one test")
    parser.add_argument("names", nargs="*", help="files, such as test_utils or scripts/test_ops; all without names")
    return parser.parse_args()


def main():
    python = os.environ.get("ACCEL_PEER_PYTHON", str(ROOT / "build" / "deps" / "torch_python" / "bin" / "python"))
    if not os.access(python, os.X_OK):
        print(f"skipped: there is no {python}; `tools/setup.sh --torch` makes it")
        return 77
    if pathlib.Path(python).absolute() != pathlib.Path(sys.executable).absolute():
        os.execv(python, [python, *sys.argv])
    arguments = parse()
    missing = [package for package in ("torch", "pytest", "pytest_timeout", "parameterized") if importlib.util.find_spec(package) is None]
    if missing or not arguments.source.is_dir():
        what = f"{sys.executable} has no {', '.join(missing)}" if missing else f"{arguments.source} is not there"
        print(f"skipped: {what}; `tools/setup.sh --torch` installs it")
        return 77
    baseline, passing = lines_of("baseline.txt"), set(lines_of("passing.txt"))
    reasons = [line.split(": ", 1) for line in lines_of("reasons.txt")]
    source = arguments.source.resolve()
    all_files = sorted(file.stem for file in (source / "tests").glob("test_*.py")) + [f"scripts/{script}" for script in SCRIPTS]
    unknown = sorted(set(arguments.names) - set(all_files))
    if unknown:
        sys.exit(f"run_tests: {', '.join(unknown)} is not a file of tests; expected some of {', '.join(all_files)}")
    files = arguments.names or all_files
    outcomes, began = {}, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(source, arguments.build.resolve(), folder, arguments.seconds)
        for name in files:
            outcomes.update(runner.run(name))
            wanted = [test for test in baseline if file_of(test) == name]
            print(f"{name}: {sum(outcomes.get(test) == 'passed' for test in wanted)} of {len(wanted)}", flush=True)
            if any(outcomes.get(test) != "passed" for test in wanted if test in passing):
                print(runner.last_output())
    ran = [test for test in baseline if file_of(test) in files]
    lost = [test for test in ran if test in passing and outcomes.get(test) != "passed"]
    new = [test for test in ran if test not in passing and outcomes.get(test) == "passed"]
    unexplained = [test for test in ran if outcomes.get(test) != "passed" and reason_of(test, reasons) is None]
    for title, tests in (("passed before", lost), ("pass now: add them to tests/peer/passing.txt", new), ("fail without a reason", unexplained)):
        print("".join(f"  {title}: {test}\n" for test in tests), end="")
    seconds = time.monotonic() - began
    print(f"Ran {sum(outcomes.get(test) == 'passed' for test in ran) + len(lost)} tests in {seconds:.1f}s\n\n"
          + (f"FAILED (failures={len(lost)})" if lost else "OK"))  # as unittest says it, for the count of all tests
    if arguments.report and not arguments.names:
        arguments.report.write_text(report(files, baseline, outcomes, reasons))
    return 1 if lost or unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
