#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What table.py writes into the pages of the repository from the results of a run, whose figures are in fixtures/results.jsonl."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import bundles
import steps
import table

FIXTURES = pathlib.Path(__file__).with_name("fixtures")


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-table-")
        self.addCleanup(folder.cleanup)
        self.docs, self.out = pathlib.Path(folder.name, "docs"), pathlib.Path(folder.name, "out")
        for made in (self.docs, self.out):
            made.mkdir()
        for page in ("devices.md", "performance.md"):
            shutil.copy(bundles.ROOT / "docs" / page, self.docs)
        shutil.copy(FIXTURES / "results.jsonl", self.out)

    def write(self):
        return subprocess.run([sys.executable, bundles.GPU / "table.py", self.out, "--docs", self.docs], capture_output=True, text=True, check=False)

    def pages(self):
        return {page.name: page.read_text() for page in self.docs.iterdir()}

    def row(self, page, beginning):
        rows = [line for line in self.pages()[page].splitlines() if line.startswith(f"| {beginning}")]
        self.assertEqual(len(rows), 1, beginning)
        return [cell.strip() for cell in rows[0].strip("|").split("|")]

    def test_the_pages(self):
        done = self.write()
        self.assertEqual(done.returncode, 0, done.stderr)
        line = ("one run of `tools/gpu/run.sh` on one NVIDIA H100 80GB HBM3, driver 580.159.04, 16 cores of Intel(R) Xeon(R) Processor, Ubuntu 24.04.3 LTS, "
                "torch 2.11.0, accelerate 1.15.0, transformers 5.17.0, Python 3.12.3, on 2026-01-02 at 01234567.")
        for page in self.pages().values():
            self.assertIn(line, page)
        self.assertEqual(self.row("devices.md", "training in fp32")[-1], "passed (agree_1_rank, agree_2_ranks, agree_resume)")
        self.assertEqual(self.row("devices.md", "order")[-1], "failed: order_backward; passed: order_seed")
        self.assertEqual(self.row("devices.md", "compute-sanitizer")[-1], "not run: sanitizer (this machine has no compute-sanitizer)")
        self.assertEqual(self.row("devices.md", "Accelerate's own tests")[-1], "failed: peer_tests")

    def test_speeds_and_ratios(self):
        self.write()
        gpt = self.row("performance.md", "GPT of 3.3 M parameters, bf16")
        self.assertEqual(gpt[1:], ["140,000", "121,000", "103,000", "119,000", "-", "-", "1.18"])
        self.assertEqual(self.row("performance.md", "GPT-2 small")[1:], ["179,000", "125,000", "-", "126,000", "244,200", "237,300", "1.42"])
        self.assertEqual(self.row("performance.md", "MLP 512")[1:], ["1.415", "1.74", "-", "2.745", "-", "-", "1.94"])
        self.assertEqual(self.row("performance.md", "step of one number")[1:], ["85", "-", "443", "-", "-", "-", "5.21"])
        self.assertEqual(self.row("performance.md", "GPT of 3.3 M parameters, fp32")[1:], ["-"] * 7)

    def test_twice_is_once_and_other_lines_stay(self):
        before = self.pages()
        self.write()
        once = self.pages()
        self.write()
        self.assertEqual(self.pages(), once)
        for name, text in once.items():
            self.assertEqual(text.count("\n## "), before[name].count("\n## "))
        for old, new in zip(before["devices.md"].splitlines(), once["devices.md"].splitlines(), strict=True):
            if not old.startswith("| ") and "The column" not in old:
                self.assertEqual(new, old)

    def test_every_row_has_a_place(self):
        """Each row that a step belongs to is in the page, and each step of the other table is a step."""
        results = {step.name: {"step": step.name, "row": step.row, "outcome": "passed", "reason": "", "figures": []} for step in steps.steps_on("cuda")}
        text = table.replace_cells(self.pages()["devices.md"], "The script for a GPU",
                                   {row: table.outcome(results, names) for row, names in table.steps_of_rows(results).items()})
        self.assertNotIn("not yet run", text.partition("## The script for a GPU")[2].partition("\n## ")[0])
        self.assertLessEqual({name for names in table.ROWS.values() for name in names}, set(results))

    def test_what_is_refused(self):
        results = self.out / "results.jsonl"
        whole, before = results.read_text(), self.pages()
        for text, expected in ((whole.replace('"device": "cuda", "seconds"', '"device": "sim", "seconds"'), "is a rehearsal on sim"),
                               (whole.replace('"cards": [{', '"cards": [], "others": [{'), "named no card"), ("", "has no results of run.sh")):
            results.write_text(text)
            done = self.write()
            self.assertEqual(done.returncode, 1)
            self.assertIn(expected, done.stderr)
        results.write_text(whole)
        (self.docs / "performance.md").write_text(before["performance.md"].replace("<!-- speeds of a GPU -->", ""))
        self.assertIn("no marks <!-- speeds of a GPU -->", self.write().stderr)
        self.assertEqual(self.pages()["devices.md"], before["devices.md"], "a page was written though another one could not be")

    # Regression: the table of a stopped run on a GPU kept cells of the run before it.
    def test_a_stopped_run_has_the_rows_until_then(self):
        """And no others of a former run, which the line above the table does not speak of."""
        self.write()
        self.assertIn("peer_tests", self.row("devices.md", "Accelerate's own tests")[-1])
        results = self.out / "results.jsonl"
        results.write_text("".join(results.read_text().splitlines(keepends=True)[:6]))
        self.assertEqual(self.write().returncode, 0)
        self.assertEqual(self.row("devices.md", "training in fp32")[-1], "not yet run")
        self.assertEqual(self.row("devices.md", "order")[-1], "failed: order_backward; passed: order_seed")
        self.assertEqual(self.row("devices.md", "Accelerate's own tests")[-1], "not yet run")

    def test_a_bundle_with_changes_says_so(self):
        results = self.out / "results.jsonl"
        results.write_text(re.sub(r'"commit": "([0-9a-f]+)', r'"commit": "\1 and changes', results.read_text()))
        self.write()
        self.assertIn("on 2026-01-02 at 01234567 and changes.", self.pages()["devices.md"])


if __name__ == "__main__":
    unittest.main()
