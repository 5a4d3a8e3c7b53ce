#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages of several ranks in files.

usage: log_sinks_test.py PATH_OF_OBSERVED_PROGRAM [unittest argument ...]
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
SECONDS = 60


class LogSinksTest(unittest.TestCase):
    def test_ranks_log_in_order_and_each_into_its_file(self):
        with tempfile.TemporaryDirectory(prefix="accel-log-") as folder:
            result = subprocess.run([PROGRAM, "log", folder], capture_output=True, text=True, timeout=SECONDS, check=False)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            files = {path.name: [json.loads(line) for line in path.read_text().splitlines()]
                     for path in pathlib.Path(folder).iterdir()}
        self.assertEqual(sorted(files), ["all.jsonl", "rank0.jsonl", "rank1.jsonl", "rank2.jsonl"])
        in_order = [(line["message"], line["rank"]) for line in files["all.jsonl"] if line["message"] in ("info", "error")]
        self.assertEqual(in_order, [("info", rank) for _ in range(20) for rank in (0, 2)] +
                         [("error", rank) for _ in range(20) for rank in (0, 1, 2)])
        for rank in range(3):
            own = [line for line in files[f"rank{rank}.jsonl"] if line["logger"] == "ranks"]
            self.assertTrue(all(line["rank"] == rank for line in own))
            self.assertEqual([line["message"] for line in own if line["message"] in ("main", "once")],
                             ["main", "once"] if rank == 0 else ["once"])


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
