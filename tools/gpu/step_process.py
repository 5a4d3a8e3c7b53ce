# SPDX-License-Identifier: Apache-2.0
"""One step as a process: its output goes to the log as it comes, its time is limited, and nothing of it is left behind."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

NOT_RUN = 77  # exit status, as Meson's tests have it; the last line is the reason
LOGGED = 250_000  # characters of a step in the log; its last lines come in any case
LAST_LINES = 60


def processes_of_session(leader):
    """The processes of the session that a step began, those that have left its process group included."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                    found.append(int(entry.name))
    return found


class StepProcess:
    def __init__(self, step, context, limit, log):
        self.step, self.limit, self._log, self._context = step, limit, log, context
        self.figures, self._last, self._logged = [], [], 0
        self._tests = None  # how many tests of GoogleTest or unittest passed
        self._skipped, self._ran = "", 0

    def start(self):
        self._began = time.monotonic()
        folder = self._context.scratch / self.step.name
        folder.mkdir()
        self._process = subprocess.Popen(
            self.step.command(self._context), cwd=folder, env={**self._context.environment, **self.step.environment(self._context)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def seconds(self):
        return time.monotonic() - self._began

    def wait(self):
        """(outcome, reason, seconds, figures)"""
        late = False
        try:
            self._process.wait(self.limit)
        except subprocess.TimeoutExpired:
            late = True
        seconds = self.seconds()
        self.kill()
        self._reader.join(2)
        if not self._reader.is_alive():
            self._process.stdout.close()
        for line in self._last if self._logged > LOGGED else []:
            self._log(self.step.name, line)
        last = next((line.strip() for line in reversed(self._last) if line.strip()), "")
        if late:
            return "failed", f"it took longer than {self.limit:.0f} s; its last line: {last}", seconds, self.figures
        if self._process.returncode == NOT_RUN:
            return "not run", last, seconds, self.figures
        if self._process.returncode != 0:
            return "failed", f"status {self._process.returncode}: {self._failure() or last}", seconds, self.figures
        if self._tests == 0:
            return ("not run", self._skipped, seconds, self.figures) if self._skipped else ("failed", "no test ran", seconds, self.figures)
        return "passed", "" if self.figures else last[:120], seconds, self.figures

    def kill(self):
        """Ends the step and all that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            alive = processes_of_session(self._process.pid)
            if not alive:
                break
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = time.monotonic() + 0.7
            while time.monotonic() < until and [pid for pid in processes_of_session(self._process.pid) if not self._is_zombie(pid)]:
                time.sleep(0.02)
        self._process.poll()

    @staticmethod
    def _is_zombie(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    def _failure(self):
        """The line that says best what went wrong."""
        said = re.compile(r"^\w*(Error|Exception|Warning)?: |Error: |^\[  FAILED  \]|error:|not found")
        return next((line.strip() for line in reversed(self._last) if said.search(line)), "")

    def _read(self):
        for line in self._process.stdout:
            line = line.rstrip("\n")
            self._last = [*self._last[-LAST_LINES:], line]
            self._logged += len(line)
            if self._logged <= LOGGED:
                self._log(self.step.name, line)
            if line.startswith('{"'):
                with contextlib.suppress(ValueError):
                    self.figures.append(json.loads(line))
            if passed := re.match(r"\[  PASSED  \] (\d+) test", line):
                self._tests = int(passed[1])
            if said := re.match(r"OK \(skipped=(\d+)\)", line):  # of unittest
                self._tests = self._ran - int(said[1])
                self._skipped = "all tests were skipped" if self._tests == 0 else ""
            if ran := re.match(r"Ran (\d+) tests? in", line):
                self._ran = int(ran[1])
                self._tests = self._ran
            if skipped := re.match(r".*: Skipped$|\[  SKIPPED \] (.*)", line):
                self._skipped = self._skipped or f"skipped: {skipped[1] or line}"
