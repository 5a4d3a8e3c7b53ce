# SPDX-License-Identifier: Apache-2.0
"""A bundle of the build for a test, and the script with it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "tools/gpu"
sys.path[:0] = [str(GPU), str(GPU / "checks")]


def make(build, folder, *options):
    return subprocess.run([sys.executable, GPU / "make_bundle.py", "--build", build, *options, folder], capture_output=True, text=True, check=False)


class Runner:
    """The Python with torch where there is one, else this one with the LibTorch of the build."""

    def __init__(self, libtorch, torch_python):
        self.variables = {"PYTHON": torch_python} if os.access(torch_python, os.X_OK) else {"PYTHON": sys.executable, "LIBTORCH": libtorch}

    def run(self, bundle, out, *seconds, **variables):
        return subprocess.run([pathlib.Path(bundle, "gpu/run.sh"), bundle, out, *map(str, seconds)], env={**os.environ, **self.variables, **variables},
                              capture_output=True, text=True, check=False)


def results(out):
    """{step: result}"""
    records = [json.loads(line) for line in pathlib.Path(out, "results.jsonl").read_text().splitlines()]
    return {record["step"]: record for record in records[1:]}


def temporary():
    return tempfile.TemporaryDirectory(prefix="accel-bundle-")
