#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One call to the system fails in everyday work: whichever it is, the library answers with a status that names the cause.

usage: failing_calls_test.py FAILING_WORK [--every [--part K N]] [--ranks 1 2]

The work is done by one rank, then by two, of which one has the failing call. No crash or hang of ours, no handle left, no checkpoint
worse than before: all ranks load the old or the new contents, and the new ones when one of them said so. The other rank succeeds, or
says in time what became of it. Nothing is left in the folder or in shared memory. Without --every a sample of the calls fails; with
it each one, or MOST_OF_TWO_RANKS, then each with all that follow it, and the words of two ranks count as well.
docs/reliability.md lists the places in LibTorch that end the process when memory runs out there, and says which of UCX's: they are
known here by their names.
"""

import argparse
import collections
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
from private_shared_memory import nothing_left_in_shared_memory

KINDS = ("malloc", "mmap", "open", "write", "read", "fsync", "rename", "mkdir", "thread", "socket", "event")
WORKS = ("create", "train", "data", "save", "load")
SAMPLES = {"malloc": 2}  # of each work; 1 of the other kinds
OF_TWO_RANKS = {"create": ("malloc", "open", "thread", "socket", "event"), "train": ("malloc", "mmap"), "data": ("malloc",),
                "save": ("malloc", "write", "fsync", "rename"), "load": ("malloc", "open")}  # in the sample
MOST_OF_TWO_RANKS = {"malloc": 40}  # of each work in each rank, with --every; 10 of the other kinds
# What a failed call of a kind may be reported as, beside success where the library can do without it.
OF_MEMORY = {"ACCEL_ERROR_OUT_OF_MEMORY"}
OF_FILES = {"ACCEL_ERROR_IO", "ACCEL_ERROR_OUT_OF_MEMORY"}
CAUSES = {kind: OF_MEMORY if kind in ("malloc", "mmap", "thread") else OF_FILES for kind in KINDS}
# Between ranks a status and what its message has: the transport's own words, what the system lacks, a connection that broke.
BETWEEN_RANKS = (
    ("ACCEL_ERROR_BACKEND", r"UCX on rank \d|needs \d+ (threads|file descriptors)|no file descriptor|no socket|cannot wait for events", KINDS),
    ("ACCEL_ERROR_BACKEND", r"could not be (reserved|mapped|opened)|cannot open the shared memory", ("open", "mmap")),
    ("ACCEL_ERROR_PEER_LOST", r"the store of rank 0|ended, or gave up|its process ended", ("socket", "event")),
    ("ACCEL_ERROR_CANCELLED", r"rank \d+ could not start: .*the store of rank 0", ("socket", "event")),
    ("ACCEL_ERROR_TIMEOUT", r"did not come within|cannot reach rank 0|did not answer|no answer from rank", ("socket", "event")),
)
# What a rank says whose own calls do not fail, beside what the other rank told it: "rank 1: cannot write ...".
OF_OTHERS = {"ACCEL_ERROR_CANCELLED", "ACCEL_ERROR_PEER_LOST", "ACCEL_ERROR_TIMEOUT"}
# Places in LibTorch and in the C++ library that end the process: a part of the function's name, as docs/reliability.md lists them.
FOREIGN = (
    "c10::Dict<c10::IValue, c10::IValue>::Dict",
    "torch::autograd::Node::~Node",
    "__cxa_thread_atexit",
    "cpuinfo_",
    "dnnl::",
    "ideep::",
    "c10::InefficientStdFunctionContext",
    "c10::Dispatcher::register",
)

Outcome = collections.namedtuple("Outcome", "work kind number failing rank end status contents live message frames")


def run(program, ranks, injections):
    """The outcomes of some works with calls of some kinds that fail, a list of the ranks' for each: (work, kind, sample), 0 for each
    call."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where nothing waits for a disk
    with tempfile.TemporaryDirectory(prefix="failing-calls-", dir=memory) as folder:
        words = [folder, ranks, *itertools.chain(*injections)]
        result = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, errors="replace")
        left = sorted(set(os.listdir(folder)) - {"rows.jsonl", "state"})
    if result.returncode != 0:
        sys.exit(result.stderr.strip())
    if left:
        sys.exit(f"left behind by a save after all others: {left}")
    outcomes = []
    for line in result.stdout.splitlines():
        *fields, frames = line.split("\t")
        if len(fields) == len(Outcome._fields) - 1:  # oneDNN prints what it did when it cannot go on
            outcomes.append(Outcome(*fields, frames.split()))
    return [outcomes[i:i + ranks] for i in range(0, len(outcomes), ranks)]


FUNCTIONS = {}  # of each frame that was learnt


def learn_functions(frames):
    """Those of frames; for many at once, because the symbols of LibTorch take seconds to read."""
    places = collections.defaultdict(list)
    for frame in set(frames) - FUNCTIONS.keys():
        places[frame.rsplit("+", 1)[0]].append(frame)
    for file, own in places.items():
        before = [hex(max(int(frame.rsplit("+", 1)[1], 16) - 1, 0)) for frame in own]  # a frame says where its call returns to
        lines = subprocess.run(["addr2line", "-Cfe", file], input="\n".join(before), capture_output=True, text=True,
                               check=False).stdout.splitlines()
        functions = lines[::2] if len(lines) == 2 * len(own) else [""] * len(own)
        FUNCTIONS.update((frame, f"{function} [{os.path.basename(file)}]") for frame, function in zip(own, functions))


def symbols(frames):
    """The functions of some frames, innermost first."""
    return [FUNCTIONS[frame] for frame in frames]


def is_foreign(outcome):
    """Whether another library ended the process."""
    if outcome.end in ("exit 127", "exit 1") and outcome.kind == "malloc":
        return True  # the dynamic linker, OpenMP's runtime
    names = symbols(outcome.frames)
    if any(foreign in name for name in names for foreign in FOREIGN):
        return True
    # UCX, where a frame of it is further inside than all of ours.
    inner = next((name for name in names if re.search(r"\[lib(uc[pst]|accel)", name)), "")
    return "[libuc" in inner


# Regression: rank 0 had no memory to serve the store to another rank, and reported that this one was lost.
# Regression: an item of a value for which there was no memory crashed Python and Julia, was nothing in Go and left out in Rust.
# Regression: a rank that gave up its start could leave another with "cannot open the shared memory": its descriptor's number was
# by then that of a socket.
# Regression: rank 0, without memory to serve itself, said that it had lost rank 0.
def names_cause(outcome):
    """Whether the rank whose call failed says so."""
    if outcome.status in CAUSES[outcome.kind] or "/dev/urandom" in outcome.message:
        return True
    return any(outcome.status == status and outcome.kind in kinds and re.search(words, outcome.message)
               for status, words, kinds in BETWEEN_RANKS)


# Regression: a lack of memory ended the process, in functions that must not fail.
def complaint(outcome, ranks):
    """What is wrong with the outcome of a rank, or None. `ranks` are all of them."""
    own = outcome.failing == outcome.rank and outcome.kind != "none"
    failed = outcome.status.startswith("ACCEL_ERROR")
    is_told = outcome.message.startswith(f"rank {outcome.failing}: ")
    # UCX cannot connect to a rank that gives up its start meanwhile.
    cannot_connect = outcome.status == "ACCEL_ERROR_BACKEND" and "could not connect to a peer" in outcome.message
    explained = names_cause(outcome) if own or is_told else outcome.status in OF_OTHERS or cannot_connect
    wrong = None
    if outcome.end != "exit 0":
        if not own or not is_foreign(outcome):
            wrong = f"{outcome.end} in {' < '.join(symbols(outcome.frames))}"
    elif failed and (outcome.kind == "none" or not explained):
        wrong = f"{outcome.status}: {outcome.message}"
    elif outcome.live != "0":
        wrong = f"{outcome.live} handles are left"
    elif outcome.work == "save":
        done = any(rank.end == "exit 0" and not rank.status.startswith("ACCEL_ERROR") for rank in ranks)
        contents = {rank.contents for rank in ranks}
        if contents not in (({"2"},) if done else ({"1"}, {"2"})):
            wrong = f"the save said {outcome.status} {outcome.message}; the checkpoint holds {sorted(contents)}"
    elif outcome.work == "load" and not failed and outcome.contents != "1":
        wrong = f"the load said {outcome.status} and gave {outcome.contents}"
    return wrong


def main():
    with nothing_left_in_shared_memory():
        complaints = complaints_of(options_given())
    sys.exit(1 if complaints else 0)


def options_given():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--every", action="store_true", help="each call, not a sample")
    parser.add_argument("--ranks", nargs="*", type=int, default=[1, 2], choices=[1, 2])
    parser.add_argument("--part", nargs=2, type=int, metavar=("K", "N"), help="with --every and one rank: the K-th of N parts of the calls")
    parser.add_argument("--works", nargs="*", default=WORKS, choices=WORKS)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    return parser.parse_args()


def complaints_of(options):
    """What was wrong; it is printed, too."""
    ends, complaints = collections.Counter(), collections.OrderedDict()
    for ranks, works in itertools.product(options.ranks, [[work] for work in options.works] if options.every else [options.works]):
        each = 0 if options.part is None else "/".join(map(str, options.part))
        injections = [(work, kind, (each if ranks == 1 else MOST_OF_TWO_RANKS.get(kind, 10)) if options.every else SAMPLES.get(kind, 1))
                      for work in works for kind in options.kinds
                      if ranks == 1 or options.every or kind in OF_TWO_RANKS[work]]
        outcomes = run(options.program, ranks, injections)
        learn_functions(frame for all_ranks in outcomes for outcome in all_ranks for frame in outcome.frames)
        for outcome, all_ranks in ((outcome, all_ranks) for all_ranks in outcomes for outcome in all_ranks):
            wrong = complaint(outcome, all_ranks)
            # Which call of two ranks the n-th is differs from run to run: a sample of them cannot judge words.
            if wrong and wrong.startswith("ACCEL_ERROR") and ranks > 1 and not options.every:
                ends["answered in other words"] += 1
                continue
            ends["wrong" if wrong else "ended by a library below" if outcome.end != "exit 0" else "answered"] += 1
            if wrong:
                where = f"{outcome.work}, {outcome.kind} in rank {outcome.failing} of {ranks}, rank {outcome.rank}"
                complaints.setdefault((where, wrong), []).append(outcome.number)
        if options.every:
            print(f"{', '.join(works)}, {ranks} ranks: {sum(map(len, outcomes)):,} outcomes; {sum(map(len, complaints.values()))} wrong until now", flush=True)
    for (where, wrong), numbers in complaints.items():
        print(f"{where}: call {', '.join(numbers[:5])} ({len(numbers)} times): {wrong}")
    print(", ".join(f"{count:,} {end}" for end, count in ends.items()))
    return complaints


if __name__ == "__main__":
    main()
