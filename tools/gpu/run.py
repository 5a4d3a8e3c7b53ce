#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of steps.py with a bundle and writes what came of them: run.py BUNDLE OUT [SECONDS]

OUT gets steps.log (what the steps print, line by line as they print it), results.jsonl (a record for each step, as soon as it ends),
summary.txt (after each step, too), and what steps leave there. Checks run side by side, then those that need the device alone, then
speeds one after another. Nothing takes longer than SECONDS (480). A failed step ends only itself. Exit status: 0 when no step
failed; 1; 2 for arguments that are wrong.
"""

import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

import bundle as bundles
import steps as all_steps
from record import Record
from step_process import StepProcess

LEAST_SECONDS = 20
RESERVE = 3  # seconds of the end, for killing what runs and the summary
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Until which part of the time the steps of each phase run, and how many at once.
PHASES = {"first": (0.3, 1), "check": (0.58, max(4, (os.cpu_count() or 2) * 3 // 4)), "alone": (0.76, 1), "speed": (1.0, 1)}


class Stopped(BaseException):
    """A signal ended the script."""


class Script:
    def __init__(self, context, record, began, seconds):
        self.context, self.record, self.began, self.seconds = context, record, began, seconds
        self.running, self.lock, self.stopped = {}, threading.Lock(), False
        self.steps, self.no_device = all_steps.steps_on(context.device), None

    def left_until(self, part):
        return self.began + part * (self.seconds - RESERVE) - time.monotonic()

    def run_step(self, step, part):
        reason = self.no_device or step.reason_not_to_run(self.context)
        left = self.left_until(part)
        if reason is None and left < min(step.limit, 5):
            reason = "no time is left"
        if reason is not None:
            self.record.add(step, "not run", reason, 0, [])
            return
        process = StepProcess(step, self.context, min(step.limit, left), self.record.log)
        with self.lock:
            if self.stopped:
                return
            try:
                process.start()
            except OSError as error:  # its program is missing or must not be run, or there is no place
                self.record.add(step, "failed", f"it cannot be started: {error}", 0, [])
                return
            self.running[step.name] = process
        outcome = process.wait()
        with self.lock:
            if not self.stopped:
                del self.running[step.name]
                self.record.add(step, *outcome)

    def run_phase(self, phase):
        part, slots = PHASES[phase]
        waiting = iter([step for step in self.steps if step.phase == phase])

        def work():
            while not self.stopped:
                with self.lock:
                    step = next(waiting, None)
                if step is None:
                    return
                self.run_step(step, part)

        workers = [threading.Thread(target=work, daemon=True) for _ in range(slots)]
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive():
                worker.join(0.2)  # lets signals through
        if phase == "first" and self.record.failed():
            self.no_device = f"there is no {self.context.device} to run it on"

    def stop(self):
        """Ends what runs; its output so far is in the log."""
        with self.lock:
            self.stopped = True
            running = dict(self.running)
        for process in running.values():
            process.kill()
        for name, process in running.items():
            self.record.add(process.step, "failed", f"the script was stopped while {name} ran", process.seconds(), process.figures)
        for step in self.steps:
            if not self.record.has(step):
                self.record.add(step, "not run", "the script was stopped before it", 0, [])


def read_arguments(arguments):
    """(bundle, its facts, LibTorch, OUT, SECONDS, DEVICE); raises BundleError."""
    if len(arguments) not in (2, 3):
        raise bundles.BundleError("expected BUNDLE OUT [SECONDS]")
    try:
        seconds = int(arguments[2]) if len(arguments) > 2 else 480
    except ValueError:
        raise bundles.BundleError(f"SECONDS {arguments[2]}: expected a whole number") from None
    if seconds < LEAST_SECONDS:
        raise bundles.BundleError(f"SECONDS {seconds} is too small: expected at least {LEAST_SECONDS}")
    device = os.environ.get("DEVICE", "cuda")
    if device not in ("cuda", "cpu", "sim"):
        raise bundles.BundleError(f"DEVICE={device}: expected cuda, cpu or sim")
    folder, out = pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1])
    facts = bundles.read(folder)
    if missing := bundles.missing_libraries(folder, facts):
        raise bundles.BundleError(f"{folder} is not complete: {', '.join(missing)} of its bundle.json is missing; copy it again")
    torch = bundles.libtorch(facts)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "steps.log").open("w").close()
    except OSError as error:
        raise bundles.BundleError(f"OUT {out} cannot be written: {error.strerror}; give a folder that can be") from None
    return folder, facts, torch, out.resolve(), seconds, device


def stop_once(number, _):
    """What runs is ended then, which another signal must not interrupt."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(signal.Signals(number).name)


def main():
    began, record, script = time.monotonic(), None, None
    try:
        folder, facts, torch, out, seconds, device = read_arguments(sys.argv[1:])
        with tempfile.TemporaryDirectory(prefix="accel-gpu-", ignore_cleanup_errors=True) as name:
            scratch, record = pathlib.Path(name), Record(out, facts, device, seconds)
            try:
                for number in SIGNALS:
                    signal.signal(number, stop_once)
                bundles.unpack(folder, scratch)
                environment = bundles.environment(folder, torch, device, scratch, out)
                context = all_steps.Context(folder, facts, torch, out, scratch, device, environment)
                script = Script(context, record, began, seconds)
                for phase in PHASES:
                    script.run_phase(phase)
                record.finish("all steps are done")
            except Stopped as stop:
                if script is not None:
                    script.stop()
                record.finish(f"stopped by {stop}")
    except bundles.BundleError as error:
        if record is not None:
            record.finish(str(error))
        print(f"run.sh: {error}", file=sys.stderr)
        return 2
    print((out / "summary.txt").read_text(), end="")
    return 1 if script is None or script.stopped or record.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
