#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bundle of a build: what it has, that it starts in an empty root, and what the script says of one that is wrong.

bundle_test.py BUILD_FOLDER LIBTORCH TORCH_PYTHON
"""

import json
import pathlib
import re
import shutil
import sys
import unittest
from unittest import mock

import bundles
import make_bundle
import shared_objects

BUILD, LIBTORCH, TORCH_PYTHON = sys.argv[1:4]


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = bundles.temporary()
        cls.bundle = pathlib.Path(cls.folder.name, "bundle")
        cls.made = bundles.make(BUILD, cls.bundle, "--check")
        cls.runner = bundles.Runner(LIBTORCH, TORCH_PYTHON)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def out(self):
        return pathlib.Path(self.folder.name, self._testMethodName)

    def facts(self):
        return json.loads((self.bundle / "bundle.json").read_text())

    def change(self, name, value):
        """Another value in bundle.json until the end of the test."""
        former = (self.bundle / "bundle.json").read_text()
        self.addCleanup((self.bundle / "bundle.json").write_text, former)
        (self.bundle / "bundle.json").write_text(json.dumps({**json.loads(former), name: value}))

    def test_it_starts_in_an_empty_root(self):
        if self.made.returncode == 77:
            self.skipTest(self.made.stdout.strip())
        self.assertEqual(self.made.returncode, 0, self.made.stdout + self.made.stderr)
        self.assertIn("starts in an empty root", self.made.stdout)

    def test_the_root_finds_what_is_missing(self):
        if self.made.returncode == 77:
            self.skipTest(self.made.stdout.strip())
        less = pathlib.Path(self.folder.name, "less")
        shutil.copytree(self.bundle, less, symlinks=True)
        (less / "lib/libcjson.so.1").unlink()
        with mock.patch("sys.stderr") as stderr:
            import empty_root

            self.assertEqual(empty_root.check(less, pathlib.Path(LIBTORCH)), 1)
        said = "".join(str(call.args[0]) for call in stderr.write.call_args_list)
        self.assertRegex(said, r"lib/libaccel\.so\.\S+: .*libcjson\.so\.1")

    def test_no_path_of_this_machine_is_in_what_is_loaded(self):
        for file in shared_objects.objects_of(self.bundle):
            self.assertNotIn("/", re.sub(r"\$ORIGIN(/\.\.|/lib)*", "", shared_objects.run_path(file)), file)
        facts = self.facts()
        self.assertEqual(facts["python"], ".".join(map(str, sys.version_info[:2])))
        self.assertTrue(all((self.bundle / name).exists() for name in facts["libraries"]))

    def test_one_that_is_too_large_is_refused_with_the_list(self):
        with self.assertRaisesRegex(make_bundle.BundleError, r"(?s)expected at most 1048576\. The largest files:.*lib/libaccel\.so\.\d"):
            make_bundle.check_size(self.bundle, 1 << 20)

    def test_a_folder_that_is_no_bundle_is_not_replaced(self):
        other = pathlib.Path(self.folder.name, "other")
        other.mkdir()
        (other / "thesis.txt").write_text("mine")
        done = bundles.make(BUILD, other)
        self.assertEqual((done.returncode, (other / "thesis.txt").read_text()), (1, "mine"))
        self.assertIn("is not empty, and not a bundle", done.stderr)

    def test_folders_that_cannot_be_made(self):
        for out, expected in ((self.bundle / "bundle.json", "bundle.json is a file; give a folder"), ("/proc/bundle", "/proc/bundle")):
            done = bundles.make(BUILD, out)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn(expected, done.stderr)

    # Regression: a bundle was made a second time for another Python than was asked for, or not at all.
    def test_a_build_for_each_python(self):
        """Its options are those that a folder takes which is configured already, so that a bundle can be made again after a change."""
        with mock.patch.object(make_bundle, "run") as run, mock.patch.object(make_bundle, "ROOT", pathlib.Path(self.folder.name)):
            folders = set()
            for version in ("3.11", "3.12"):
                environment = pathlib.Path(self.folder.name, f"build/torch-2.11.0-python{version}")
                environment.mkdir(parents=True)
                (environment / "complete").touch()
                with mock.patch.object(make_bundle, "version_of_python", return_value=version):
                    folders.add(make_bundle.build_against("2.11.0", "python3"))
                command = run.call_args.args
                self.assertIn("build.sh", str(command[0]))
                self.assertEqual([option for option in command[3:] if not option.startswith("-D")], [])
                self.assertIn(f"python{version}/site-packages/torch", " ".join(map(str, command)))
            self.assertEqual(len(folders), 2)
        with self.assertRaisesRegex(make_bundle.BundleError, "--python python9: there is no such program"):
            make_bundle.build_against("2.11.0", "python9")

    def test_a_bundle_of_another_torch(self):
        version = self.facts()["torch"]
        self.change("torch", "2.99.1")
        done = self.runner.run(self.bundle, self.out(), 60, DEVICE="cpu")
        self.assertEqual(done.returncode, 2)
        self.assertIn("built for torch 2.99.1", done.stderr)
        self.assertIn(f"is torch {version}", done.stderr)

    def test_a_bundle_of_another_python(self):
        self.change("python", "3.99")
        done = self.runner.run(self.bundle, self.out(), 60, DEVICE="cpu")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"for Python 3\.99, and .* is Python 3\.\d+")

    def test_a_library_that_is_missing(self):
        library = self.bundle / "lib/libyaml-0.so.2"
        library.rename(f"{library}.away")
        self.addCleanup(pathlib.Path(f"{library}.away").rename, library)
        done = self.runner.run(self.bundle, self.out(), 60, DEVICE="cpu")
        self.assertEqual(done.returncode, 2)
        self.assertIn("lib/libyaml-0.so.2 of its bundle.json is missing", done.stderr)

    def test_a_machine_without_a_card(self):
        out = self.out()
        done = self.runner.run(self.bundle, out, 60, DEVICE="cuda", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(done.returncode, 1)
        results = bundles.results(out)
        self.assertEqual(results["device"]["outcome"], "failed")
        self.assertIn("cuda", results["device"]["reason"])
        others = [result for name, result in results.items() if name != "device"]
        self.assertGreater(len(others), 40)
        self.assertEqual({(result["outcome"], result["reason"]) for result in others}, {("not run", "there is no cuda to run it on")})
        self.assertIn("device|", (out / "steps.log").read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
