#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Ninja in a build folder, shows how far it is, and says at the end what the build cost.

usage: run_ninja.py FOLDER NINJA_ARGUMENT...

On a terminal one line is drawn again and again, elsewhere there is a line every ten seconds. What the compilers say is shown
whole. What was compiled successfully is written to FOLDER/build_cost.json; a run that compiled nothing leaves the file alone.
"""

import collections
import json
import os
import pathlib
import re
import resource
import selectors
import signal
import subprocess
import sys
import time

MARK = b"\x1e"  # begins the lines that count; no compiler writes it
COUNT = re.compile(rb"\x1e(\d+)/(\d+)\x1e")
INTERVAL = 10.0  # seconds between two lines of a log
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Display:
    """The line of progress, and between two of them what the commands say."""

    def __init__(self, total):
        self.terminal = sys.stdout.isatty()
        self.out = sys.stdout.buffer
        self.began = self.shown = time.monotonic()
        self.done, self.total = 0, total
        self.drawn = False
        self.directory = b""

    def write(self, text):
        self.out.write(b"\r\033[K" + text if self.drawn else text)
        self.out.flush()
        self.drawn = False

    def progress(self):
        """Called often; draws when it is time to."""
        now = time.monotonic()
        if now - self.shown < (0.1 if self.terminal else INTERVAL):
            return
        self.shown = now
        files = f"{self.done} of {self.total} files" if self.total else "looking for what is to do"
        line = f"build: {files}, {now - self.began:.0f} s".encode()
        self.write(line if self.terminal else line + b"\n")
        self.drawn = self.terminal

    def line(self, line):
        """A line of Ninja's output."""
        count = COUNT.match(line)
        if count:
            self.done, self.total = int(count[1]), int(count[2])
        elif line.startswith(b"ninja: Entering directory"):
            self.directory = line  # names in messages are relative to it, so it is shown before the first
        elif not line.startswith(b"ninja: no work to do"):
            self.write(self.directory + line)
            self.directory = b""


def read_log(folder):
    """How often each line stands in Ninja's log: each says when an output was begun and done, in milliseconds."""
    try:
        text = (folder / ".ninja_log").read_text(errors="replace")
    except OSError:
        return collections.Counter()
    return collections.Counter(line for line in text.splitlines() if not line.startswith("#"))


def compile_times(before, after):
    """{object file: seconds} of what one run compiled: the lines of the log that are new."""
    seconds = {}
    for line in after - before:
        fields = line.split("\t")
        if len(fields) >= 4 and fields[3].endswith(".o"):
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def count_steps(command):
    """How many steps Ninja expects; it tells itself only once the first is done."""
    environment = dict(os.environ, NINJA_STATUS="\x1e%f/%t\x1e")
    dry_run = subprocess.run([*command, "-n"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=False)
    counts = COUNT.findall(dry_run.stdout)
    return int(counts[-1][1]) if counts else 0


def run(command, display):
    """Runs Ninja to its end; a signal is forwarded to it, and it ends its compilers. Returns (exit status, signal or 0)."""
    environment = dict(os.environ, NINJA_STATUS="\x1e%f/%t\x1e")
    if display.terminal:
        environment.setdefault("CLICOLOR_FORCE", "1")  # the compilers' colours, which Ninja takes out of what goes into a pipe
    # Not close_fds: the lock of tools/build.sh is held as long as Ninja runs, even if this process is killed.
    ninja = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, close_fds=False)
    received = []

    def pass_on(number, _frame):
        received.append(number)
        ninja.send_signal(number)

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(ninja.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(timeout=0.25):
                    block = os.read(ninja.stdout.fileno(), 1 << 16)
                    if not block:
                        break
                    *lines, rest = (rest + block).split(b"\n")
                    for line in lines:
                        display.line(line + b"\n")
                display.progress()
        if rest:
            display.line(rest + b"\n")
    except BaseException:
        ninja.terminate()
        raise
    finally:
        status = ninja.wait()
    return status, received[0] if received else 0


def describe(cost):
    files = "1 file" if cost["files"] == 1 else f"{cost['files']} files"
    return (f"build: {files} compiled in {cost['wall_s']:.0f} s, {cost['mean_s']:.1f} s each, the largest "
            f"{cost['largest_s']:.1f} s ({cost['largest_file']}); {cost['processor_s']:.0f} s of processor time, "
            f"at most {cost['peak_mb']} MB in one process")


def main():
    if len(sys.argv) < 2:
        print("usage: run_ninja.py FOLDER NINJA_ARGUMENT...", file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    command = ["ninja", "-C", str(folder), *sys.argv[2:]]
    display = Display(count_steps(command))
    before, used_before = read_log(folder), resource.getrusage(resource.RUSAGE_CHILDREN)
    status, stopped_by = run(command, display)
    wall = time.monotonic() - display.began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    display.write(b"")
    if stopped_by:
        print(f"build: stopped after {display.done} of {display.total} files; the next run continues", file=sys.stderr)
        return 128 + stopped_by
    if status != 0:
        return status if status > 0 else 128 - status
    times = compile_times(before, read_log(folder))
    if not times:
        print(f"build: nothing to compile in {folder}")
        return 0
    largest = max(times, key=times.get)
    cost = {"files": len(times), "mean_s": round(sum(times.values()) / len(times), 2), "largest_s": times[largest],
            "largest_file": largest, "wall_s": round(wall, 1), "peak_mb": used.ru_maxrss // 1024,
            "processor_s": round(used.ru_utime + used.ru_stime - used_before.ru_utime - used_before.ru_stime, 1)}
    complete = folder / "build_cost.json.new"
    complete.write_text(json.dumps(cost) + "\n")
    os.replace(complete, folder / "build_cost.json")
    print(describe(cost))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
