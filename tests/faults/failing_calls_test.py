#!/usr/bin/env python3
"""One call to the system fails in everyday work: whichever it is, the library answers with a status that names the cause.

usage: failing_calls_test.py FAILING_WORK [--every]

No crash or hang of ours, no handle left, no checkpoint worse than before: it loads with the old or the new contents, and with the new
ones when the save said so. Without --every a sample of the calls fails; with it each one, then each with all that follow it.
docs/reliability.md lists the places in LibTorch that end the process when memory runs out there; they are known here by their names.
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile

KINDS = ("malloc", "mmap", "open", "write", "read", "fsync", "rename", "mkdir", "thread", "socket", "event")
WORKS = ("create", "train", "data", "save", "load")
SAMPLES = {"malloc": 2}  # of each work; 1 of the other kinds
# What a failed call of a kind may be reported as, beside success where the library can do without it.
OF_MEMORY = {"ACCEL_ERROR_OUT_OF_MEMORY"}
OF_FILES = {"ACCEL_ERROR_IO", "ACCEL_ERROR_OUT_OF_MEMORY"}
CAUSES = {kind: OF_MEMORY if kind in ("malloc", "mmap", "thread") else OF_FILES for kind in KINDS}
# Places in LibTorch and in the C++ library that end the process: a part of the function's name, as docs/reliability.md lists them.
FOREIGN = (
    "c10::Dict<c10::IValue, c10::IValue>::Dict",
    "torch::autograd::Node::~Node",
    "__cxa_thread_atexit",
    "cpuinfo_",
    "dnnl::",
    "ideep::",
    "c10::InefficientStdFunctionContext",
)

Outcome = collections.namedtuple("Outcome", "work kind number end status contents live message frames")


def run(program, injections):
    """The outcomes of some works with calls of some kinds that fail: (work, kind, sample), 0 for each call."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where nothing waits for a disk
    with tempfile.TemporaryDirectory(prefix="failing-calls-", dir=memory) as folder:
        result = subprocess.run([program, folder, *(str(word) for injection in injections for word in injection)], capture_output=True,
                                text=True, check=False, errors="replace")
        left = sorted(set(os.listdir(folder)) - {"rows.jsonl", "state"})
    if result.returncode != 0:
        sys.exit(result.stderr.strip())
    if left:
        sys.exit(f"left behind by a save after all others: {left}")
    for line in result.stdout.splitlines():
        *fields, frames = line.split("\t")
        if len(fields) != len(Outcome._fields) - 1:
            continue  # oneDNN prints what it did when it cannot go on
        yield Outcome(*fields, frames.split())


def symbols(frames):
    """The functions of some frames, innermost first."""
    places = [frame.rsplit("+", 1) for frame in frames]
    before = [hex(max(int(offset, 16) - 1, 0)) for _, offset in places]  # a frame says where its call returns to
    names = [""] * len(frames)
    for file in {file for file, _ in places}:
        own = [i for i, place in enumerate(places) if place[0] == file]
        lines = subprocess.run(["addr2line", "-Cfe", file, *(before[i] for i in own)], capture_output=True, text=True,
                               check=False).stdout.splitlines()
        for i, function in zip(own, lines[::2]):
            names[i] = f"{function} [{os.path.basename(file)}]"
    return names


def complaint(outcome):
    """What is wrong with an outcome, or None."""
    wrong = None
    failed = outcome.status.startswith("ACCEL_ERROR")
    if outcome.end != "exit 0":
        names = symbols(outcome.frames)
        if not any(foreign in name for name in names for foreign in FOREIGN):
            wrong = f"{outcome.end} in {' < '.join(names)}"
    elif failed and (outcome.kind == "none" or outcome.status not in CAUSES[outcome.kind]) and "/dev/urandom" not in outcome.message:
        wrong = f"{outcome.status}: {outcome.message}"
    elif outcome.live != "0":
        wrong = f"{outcome.live} handles are left"
    elif outcome.work == "save" and outcome.contents not in (("1", "2") if failed else ("2",)):
        wrong = f"the save said {outcome.status} {outcome.message}; the checkpoint holds {outcome.contents}"
    elif outcome.work == "load" and not failed and outcome.contents != "1":
        wrong = f"the load said {outcome.status} and gave {outcome.contents}"
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--every", action="store_true", help="each call, not a sample")
    parser.add_argument("--works", nargs="*", default=WORKS, choices=WORKS)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    injections = [(work, kind, 0 if options.every else SAMPLES.get(kind, 1)) for work in options.works for kind in options.kinds]
    ends, complaints = collections.Counter(), collections.OrderedDict()
    for outcome in run(options.program, injections):
        wrong = complaint(outcome)
        ends["wrong" if wrong else "ended by LibTorch" if outcome.end != "exit 0" else "answered"] += 1
        if wrong:
            complaints.setdefault((outcome.work, outcome.kind, wrong), []).append(outcome.number)
    for (work, kind, wrong), numbers in complaints.items():
        print(f"{work}, {kind} {', '.join(numbers[:5])} ({len(numbers)} times): {wrong}")
    print(", ".join(f"{count:,} {end}" for end, count in ends.items()))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
