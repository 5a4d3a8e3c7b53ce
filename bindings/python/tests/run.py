"""Runs the tests below this folder with pytest; 77 where that is missing. `--torch PYTHON [FILE ...]`: those of torch's programs, all or those in
these files, with that Python or $ACCEL_TORCH_PYTHON, which has torch; 77 unless torch and Python are those that the package is built for."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent

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
    tests = [] if any(argument.endswith(".py") for argument in arguments) else sorted(str(file) for file in HERE.glob("test_torch*.py"))
    os.execv(python, [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, *arguments])

try:
    import pytest
except ImportError:
    print("skipped: no pytest for this Python; tools/setup.sh --develop installs it into build/deps/python")
    sys.exit(77)

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(HERE), *sys.argv[1:]]))
