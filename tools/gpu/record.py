# SPDX-License-Identifier: Apache-2.0
"""What is written of a run while it goes on, so that a script that is stopped has all until then."""

import datetime
import json
import threading

from bundle import short_commit


OF_STEPS = ("trace.json.gz", "peer_tests.json")  # what steps write beside the record


class Record:
    """Three files: steps.log, results.jsonl, summary.txt. What a former run left in the folder goes."""

    def __init__(self, out, facts, device, seconds):
        self._lock, self._out, self._results = threading.Lock(), out, []
        for name in OF_STEPS:
            (out / name).unlink(missing_ok=True)
        self._log = (out / "steps.log").open("w", buffering=1, errors="replace")
        self._jsonl = (out / "results.jsonl").open("w", buffering=1)
        self._run = {"run": {"bundle": facts, "device": device, "seconds": seconds, "date": datetime.date.today().isoformat()}}
        self._jsonl.write(json.dumps(self._run) + "\n")
        self._state = "running, or stopped without a chance to say so"
        self._write_summary()

    def log(self, name, line):
        with self._lock:
            self._log.write(f"{name}| {line}\n")

    def add(self, step, outcome, reason, seconds, figures):
        result = {"step": step.name, "row": step.row, "outcome": outcome, "reason": reason, "seconds": round(seconds, 1), "figures": figures}
        with self._lock:
            self._results.append(result)
            self._jsonl.write(json.dumps(result) + "\n")
            self._write_summary()

    def finish(self, state):
        with self._lock:
            self._state = state
            self._write_summary()

    def has(self, step):
        with self._lock:
            return any(result["step"] == step.name for result in self._results)

    def failed(self):
        return any(result["outcome"] == "failed" for result in self._results)

    def _write_summary(self):
        run = self._run["run"]
        count = {outcome: sum(result["outcome"] == outcome for result in self._results) for outcome in ("passed", "failed", "not run")}
        lines = [f"device {run['device']}, bundle of {short_commit(run['bundle'])} for torch {run['bundle']['torch']}, {run['date']}: {self._state}",
                 ", ".join(f"{number} {outcome}" for outcome, number in count.items()), ""]
        for result in self._results:
            reason = f"  {result['reason'][:200]}" if result["reason"] else ""
            lines.append(f"{result['outcome']:8} {result['step']:28} {result['seconds']:6.1f} s{reason}")
        part = self._out / "summary.part"
        part.write_text("\n".join(lines) + "\n")
        part.replace(self._out / "summary.txt")
