#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when compiling has become twice as expensive as is recorded here.

usage: build_cost_test.py BUILD_FOLDER LIBTORCH_INCLUDE KIND COMPILER...

KIND is `units` or `files`. The mean processor time of a compilation in BUILD_FOLDER/build_cost.json is divided by what the
compiler needs here and now for a source that only includes ATen/core/Tensor.h, so that the figure is nearly the same on every
machine. 77, skipped: the latest build compiled only some files, or compilers other than the recorded one were used.
"""

import json
import pathlib
import resource
import subprocess
import sys
import tempfile

# Mean of a build from nothing, in compilations of ATen/core/Tensor.h. Change them with what was measured, and say why. That of
# files was taken beside other builds.
RECORDED = {"units": 2.5, "files": 2.7}
FEWEST_FILES = {"units": 100, "files": 350}  # of a build from nothing; fewer are a build after a change
REPETITIONS = 3


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reference_seconds(include, compiler):
    """The shortest of several: what else the machine does can only add to it."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "reference.cpp")
        source.write_text("#include <ATen/core/Tensor.h>\n")
        command = [*compiler, "-std=c++17", "-O2", "-isystem", include, "-c", str(source), "-o", str(source.with_suffix(".o"))]
        times = []
        for _ in range(REPETITIONS):
            before = processor_seconds()
            subprocess.run(command, check=True)
            times.append(processor_seconds() - before)
    return min(times)


def main():
    if len(sys.argv) < 5:
        print("usage: build_cost_test.py BUILD_FOLDER LIBTORCH_INCLUDE KIND COMPILER...", file=sys.stderr)
        return 2
    folder, include, kind, *compiler = sys.argv[1:]
    file = pathlib.Path(folder, "build_cost.json")
    cost = json.loads(file.read_text()) if file.is_file() else {"files": 0}
    if cost["files"] < FEWEST_FILES[kind]:
        print(f"skipped: the latest build compiled {cost['files']} files; a build from nothing is compared")
        return 77
    compiler = [word for word in compiler if not word.endswith("ccache")]
    mean = cost["processor_s"] / cost["files"]
    ratio = mean / reference_seconds(include, compiler)
    print(f"a compilation took {mean:.1f} s of processor time in the mean, {ratio:.2f} times ATen/core/Tensor.h alone; "
          f"recorded: {RECORDED[kind]:.2f}")
    if ratio > 2 * RECORDED[kind]:
        print(f"expected at most {2 * RECORDED[kind]:.2f}: look for heavy headers, or record the new figure in {__file__}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
