# SPDX-License-Identifier: Apache-2.0
"""The snippets of the README run, and the page about porting shows what the two scripts differ in."""

import difflib
import os
import re
import subprocess
import sys

from accel.compat import missing
from conftest import ROOT

PORT = ROOT / "examples/python/port"


def run(folder, *command):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd=folder, timeout=120,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_readme(tmp_path):
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "bindings/python/README.md").read_text(), re.DOTALL)
    assert len(snippets) >= 6
    (tmp_path / "readme.py").write_text("\n".join(snippets))
    done = run(tmp_path, "readme.py")
    assert done.returncode == 0, done.stderr
    assert "ACCEL_ERROR_TORCH" in done.stdout and "hello [0]" in done.stdout and "1 {'loss': 1.0}" in done.stdout


def test_the_page_about_porting_is_true():
    texts = [(PORT / name).read_text().splitlines() for name in ("with_accelerate.py", "with_accel.py")]
    diff = "\n".join(difflib.unified_diff(*texts, "with_accelerate.py", "with_accel.py", lineterm="", n=1))
    assert f"```diff\n{diff}\n```" in (ROOT / "docs/python_port.md").read_text()
    changed = [line for line in diff.splitlines() if line.startswith("+") and "import" not in line and not line.startswith("+++")]
    assert len(changed) <= 5


def test_the_page_about_porting_names_all_that_is_not_there():
    page = (ROOT / "docs/python_port.md").read_text()
    for part, names in missing.MISSING.items():
        assert any(f"`{name}`" in page for name in names.split()), part
    for name in missing.INSTEAD:
        assert f"`{name.rpartition('.')[2]}`" in page, name
    for module in missing.MISSING_MODULES:
        assert any(f"`accelerate.{module[:end]}`" in page for end in range(1, len(module) + 1)), module


def test_the_ported_script_runs(ranks, tmp_path):
    for printed in (run(tmp_path, PORT / "with_accel.py", "--project-dir", tmp_path / "one").stdout,
                    ranks((PORT / "with_accel.py").read_text())[0]):
        lines = printed.splitlines()
        assert re.fullmatch(r"epoch 2: 4[0-9] of 50 right|epoch 2: 50 of 50 right", lines[2]) and "checkpoint_2" in lines[3]
