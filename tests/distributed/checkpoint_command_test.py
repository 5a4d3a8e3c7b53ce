#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands `accel checkpoint` and `accel merge-weights`, on what the example `checkpoint` saves.

usage: checkpoint_command_test.py PATH_OF_ACCEL PATH_OF_THE_EXAMPLE FOLDER_OF_FIXTURES [unittest argument ...]
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ACCEL = EXAMPLE = FIXTURES = ""


def accel(*arguments):
    return subprocess.run([ACCEL, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="accel-commands-")
        cls.root = pathlib.Path(cls.folder.name)
        cls.saved = cls.root / "checkpoints/checkpoint_3"
        subprocess.run([EXAMPLE, str(cls.saved)], check=True, stdout=subprocess.DEVNULL, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def copy(self, name):
        copied = self.root / name
        shutil.copytree(self.saved, copied)
        self.addCleanup(shutil.rmtree, copied)
        return copied

    def expect(self, result, status, *texts):
        said = result.stdout + result.stderr
        self.assertEqual(result.returncode, status, said)
        for text in texts:
            self.assertIn(text, said)

    def test_verify(self):
        self.expect(accel("checkpoint", "verify", self.saved), 0, "all as they were written")
        damaged = self.copy("damaged")
        data = bytearray((damaged / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (damaged / "model.safetensors").write_bytes(data)
        (damaged / "optimizer.bin").unlink()
        self.expect(accel("checkpoint", "verify", damaged), 1, "model.safetensors' is damaged", "optimizer.bin", ": damaged")
        self.expect(accel("checkpoint", "verify", self.root), 3, "accel_manifest.json")

    def test_list(self):
        self.expect(accel("checkpoint", "list", self.root), 0, "checkpoints/checkpoint_3", "of 1 ranks")
        (self.root / "checkpoints/checkpoint_4").mkdir()
        self.addCleanup((self.root / "checkpoints/checkpoint_4").rmdir)
        self.expect(accel("checkpoint", "list", self.root), 0, "NOT COMPLETE")

    def test_show(self):
        self.expect(accel("checkpoint", "show", self.saved), 0, "model.safetensors", "float32 [", "random_states_0.pkl", "1 ranks")

    def test_diff(self):
        other = self.copy("other")
        self.expect(accel("checkpoint", "diff", self.saved, other), 0, "files are equal")
        (other / "scheduler.bin").unlink()
        (other / "added").write_text("text")
        data = bytearray((other / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (other / "model.safetensors").write_bytes(data)
        self.expect(accel("checkpoint", "diff", self.saved, other), 1, "- scheduler.bin", "+ added", "! model.safetensors\n", "! model.safetensors: ")

    def test_json(self):
        def said(status, *arguments):
            result = accel("checkpoint", *arguments)
            self.assertEqual(result.returncode, status, result.stderr)
            return json.loads(result.stdout)

        self.assertEqual(said(0, "verify", self.saved, "--json")["problems"], [])
        self.assertTrue(said(0, "--json", "list", self.root)[0]["path"].endswith("checkpoint_3"))
        self.assertIn("model.safetensors", [file["name"] for file in said(0, "--json", "show", self.saved)["files"]])
        other = self.copy("other_json")
        (other / "scheduler.bin").unlink()
        self.assertEqual(said(1, "diff", self.saved, other, "--json")["only_in_first"], ["scheduler.bin"])

    def test_merge_weights(self):
        merged = self.root / "merged"
        self.addCleanup(shutil.rmtree, merged)
        parts = pathlib.Path(FIXTURES) / "distributed_checkpoint"
        self.expect(accel("merge-weights", parts, merged), 0)
        self.expect(accel("merge-weights", parts, merged, "--unsafe_serialization"), 0)
        self.assertEqual(sorted(path.name for path in merged.iterdir()), ["model.safetensors", "pytorch_model.bin"])
        self.expect(accel("merge-weights", FIXTURES, merged), 3, "distributed_checkpoint is meant")

    def test_wrong_usage(self):
        self.expect(accel("checkpoint"), 2, "expected verify, list, show or diff")
        self.expect(accel("checkpoint", "repair", "."), 2, "'repair' is not a command")
        self.expect(accel("checkpoint", "diff", "."), 2, "was given 1 folders; expected 2")
        self.expect(accel("checkpoint", "--unknown"), 2, "--unknown")
        self.expect(accel("merge-weights", "one"), 2, "expected CHECKPOINT_FOLDER DESTINATION")
        self.expect(accel("checkpoint", "--help"), 0, "verify FOLDER")
        self.expect(accel("merge-weights", "--help"), 0, "--unsafe-serialization")


if __name__ == "__main__":
    ACCEL, EXAMPLE, FIXTURES = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
