"""Runs the tests below this folder with pytest; 77 where that is missing."""

import pathlib
import sys

try:
    import pytest
except ImportError:
    print("skipped: no pytest for this Python; tools/setup.sh --develop installs it into build/deps/python")
    sys.exit(77)

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(pathlib.Path(__file__).parent), *sys.argv[1:]]))
