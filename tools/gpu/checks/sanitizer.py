# SPDX-License-Identifier: Apache-2.0
"""memcheck of compute-sanitizer over one training step and one checkpoint."""

import os
import pathlib
import re
import shutil
import subprocess

from result import not_run, require

FOUND = 86  # the exit status for errors that memcheck found
# The tool itself does not work here: no rights to observe the card, or a driver that it does not know.
BROKEN = re.compile(r"(Unable to|Failed to|could not) (attach|initialize|inject|find)|terminated before first instrumented API call|not supported", re.IGNORECASE)


def program():
    places = [shutil.which("compute-sanitizer"), *sorted(map(str, pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer")))]
    return next((place for place in places if place), None)


def judge(status, said):
    """What a run of the tool shows: (passed, reason); passed is None where the tool does not work."""
    summary = re.search(r"ERROR SUMMARY: (\d+) error", said)
    if summary and summary[1] != "0" or status == FOUND:
        return False, f"memcheck found errors: {summary[0] if summary else said[-200:]}"
    if broken := BROKEN.search(said):
        return None, f"compute-sanitizer does not work here: {broken[0]}"
    if status != 0 or summary is None:
        return False, f"compute-sanitizer has status {status}: {said.strip()[-300:]}"
    return True, summary[0]


def main():
    tool, bundle = program(), os.environ["BUNDLE"]
    if tool is None:
        not_run("this machine has no compute-sanitizer")
    command = [tool, "--tool", "memcheck", "--error-exitcode", str(FOUND), f"{bundle}/bin/train_gpt", "--text", f"{bundle}/python", "--suffix", ".py",
               "--steps", "1", "--layers", "1", "--width", "64", "--context", "32", "--checkpoint-every", "1", "--checkpoint-dir", "saved",
               "--eval-every", "0", "--sample-length", "0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    print(done.stdout)
    passed, reason = judge(done.returncode, done.stdout)
    if passed is None:
        not_run(reason)
    require(passed, reason)
    require(any(pathlib.Path("saved").rglob("*")), "train_gpt wrote no checkpoint")
    print(reason)


if __name__ == "__main__":
    main()
