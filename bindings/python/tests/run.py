"""Runs the tests below this folder with pytest; 77 where that is missing. `--torch PYTHON [FILE ...]`: those of torch's programs, all or those in
these files, with a Python that has torch."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).parent

if sys.argv[1:2] == ["--torch"]:
    python, *arguments = sys.argv[2:]
    if not os.access(python, os.X_OK):
        print(f"skipped: no Python with torch in {python}; `tools/setup.sh --torch` makes it")
        sys.exit(77)
    tests = [] if any(argument.endswith(".py") for argument in arguments) else sorted(str(file) for file in HERE.glob("test_torch*.py"))
    os.execv(python, [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, *arguments])

try:
    import pytest
except ImportError:
    print("skipped: no pytest for this Python; tools/setup.sh --develop installs it into build/deps/python")
    sys.exit(77)

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(HERE), *sys.argv[1:]]))
