#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libaccel and Python's torch in one process: they share one LibTorch, or there is a clear error.

usage: python_torch_test.py LIBACCEL LIBTORCH_VERSION

Runs the Python of $ACCEL_TORCH_PYTHON, that of `tools/setup.sh --torch`, or this one, and is skipped (77) when it has no torch. With the torch that libaccel
was built for, tensors go both ways and autograd works on both sides, whoever is loaded first. With another one, the second
to be loaded fails with a message. Files of torch are read and written, too, where there is NumPy, and folders of models where there is transformers.
"""

import os
import subprocess
import sys

SKIPPED = 77
PREPARED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "deps", "torch_python", "bin", "python")
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_torch_worker.py")

FILES_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_files_worker.py")
FOLDERS_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model_folders_worker.py")


def run(python, *arguments):
    return subprocess.run([python, "-W", "ignore", *arguments], capture_output=True, text=True, timeout=100)


def problem_of(result, same_version):
    """What is wrong with a worker's end, or None."""
    if same_version:
        return None if result.returncode == 0 else result.stderr.strip()
    if result.returncode != 1:
        return f"ended with {result.returncode}; expected 1, an error: {result.stderr.strip()}"
    last = result.stderr.strip().splitlines()[-1]
    known = ("undefined symbol", "cannot open shared object", "LibTorch")
    return None if any(words in last for words in known) else f"failed with another error: {last}"


def main():
    if len(sys.argv) != 3:
        print("usage: python_torch_test.py LIBACCEL LIBTORCH_VERSION", file=sys.stderr)
        return 2
    library, built_for = sys.argv[1:]
    python = os.environ.get("ACCEL_TORCH_PYTHON", PREPARED if os.access(PREPARED, os.X_OK) else sys.executable)
    version = run(python, "-c", "import torch; print(torch.__version__.split('+')[0])").stdout.strip()
    if not version:
        print(f"skipped: {python} has no torch; name a Python that has one in $ACCEL_TORCH_PYTHON")
        return SKIPPED
    failed = False
    for first in ("torch", "accel"):
        result = run(python, WORKER, library, first)
        problem = problem_of(result, version == built_for)
        end = (result.stdout + result.stderr).strip().splitlines()[-1:] or ["no output"]
        print(f"torch {version}, libaccel for {built_for}, {first} first: {problem or end[0]}")
        failed = failed or problem is not None
    if version == built_for and run(python, "-c", "import numpy").returncode == 0:
        result = run(python, FILES_WORKER, library)
        print(f"files: {(result.stdout + result.stderr).strip().splitlines()[-1]}")
        failed = failed or result.returncode != 0
    if version == built_for and run(python, "-c", "import safetensors, transformers").returncode == 0:
        result = run(python, FOLDERS_WORKER, library)
        print(f"folders: {(result.stdout + result.stderr).strip().splitlines()[-1]}")
        failed = failed or result.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
