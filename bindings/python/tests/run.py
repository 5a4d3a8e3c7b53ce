# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder with pytest; 77 where that is missing.

usage: run.py [--torch PYTHON] [--without] [FILE ...] [OPTION OF PYTEST ...]

--torch: those of torch's programs, with that Python or $ACCEL_TORCH_PYTHON, which has torch; 77 unless torch and Python are those that the package
is built for. With files only those in them; with --without all others.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def chosen(arguments, pattern):
    """The arguments for pytest, with files of this folder that fit a pattern."""
    named = [argument for argument in arguments if argument.endswith(".py")]
    options = [argument for argument in arguments if argument not in named and argument != "--without"]
    unknown = [name for name in named if not (HERE / pathlib.Path(name).name).is_file()]
    if unknown:
        sys.exit(f"run.py: {unknown[0]}: expected a file of {HERE}")
    files = sorted(file.name for file in HERE.glob(pattern))
    if named:
        names = {pathlib.Path(name).name for name in named}
        files = [name for name in files if name not in names] if "--without" in arguments else sorted(names)
    return ["-q", "-p", "no:cacheprovider", *(str(HERE / name) for name in files), *options]


if sys.argv[1:2] == ["--torch"]:
    from accel import built_for
    python, *arguments = sys.argv[2:]
    python = os.environ.get("ACCEL_TORCH_PYTHON", python)
    if not os.access(python, os.X_OK):
        print(f"skipped: no Python with torch in {python}; `tools/setup.sh --torch` makes it")
        sys.exit(77)
    versions = "import importlib.metadata, sys; print('Python %d.%d' % sys.version_info[:2], 'torch', importlib.metadata.version('torch').split('+')[0])"
    there = subprocess.run([python, "-c", versions], capture_output=True, text=True, check=False).stdout.strip() or "without torch"
    expected = f"Python {sys.version_info[0]}.{sys.version_info[1]} torch {built_for.TORCH_VERSION}"
    if there != expected:
        print(f"skipped: {python} is {there}; expected {expected}, which the package is built for: name another one in $ACCEL_TORCH_PYTHON")
        sys.exit(77)
    os.execv(python, [python, "-m", "pytest", *chosen(arguments, "test_torch*.py")])

try:
    import pytest
except ImportError:
    print("skipped: no pytest for this Python; tools/setup.sh --develop installs it into build/deps/python")
    sys.exit(77)

sys.exit(pytest.main(chosen(sys.argv[1:], "test_*.py")))
