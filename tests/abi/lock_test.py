#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/api_lock.py and the test of released symbols, on made-up descriptions and libraries.

usage: lock_test.py SOURCE_ROOT
"""

import copy
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
LOCK = ROOT / "tools/api_lock.py"
SYMBOLS_TEST = ROOT / "tests/abi/released_symbols_test.py"


def entry(kind, **more):
    return {"type": {"c": kind}, "ownership": "", "nullable": False, "doc": "Text.", **more}


def field(name, kind, offset, initial, **more):
    return {"name": name, "type": {"c": kind}, "offset": offset, "initial": initial, **more}


API = {
    "version": "0.3.0",
    "constants": [{"name": "ACCEL_VERSION_PATCH", "value": 0, "type": "int32_t"},
                  {"name": "ACCEL_OK", "value": 0, "type": "accel_status_t"}],
    "aliases": [{"name": "accel_status_t", "type": "int32_t"}],
    "handles": [{"name": "accel_thing_t", "struct": "accel_thing"}],
    "structs": [
        {"name": "accel_thing_options_t", "size": 16, "alignment": 8, "fields": [
            field("struct_size", "size_t", 0, "sizeof(accel_thing_options_t)"),
            field("speed", "int32_t", 8, "ACCEL_UNSET"), field("reserved", "int32_t", 12, "0")]},
        {"name": "accel_value_t", "size": 8, "alignment": 8, "fields": [
            field("as", "union", 0, "{0}", members=[{"name": "integer", "type": {"c": "int64_t"}},
                                                    {"name": "number", "type": {"c": "double"}}])]},
    ],
    "callbacks": [{"name": "accel_log_fn", "returns": entry("void"), "parameters": [entry("const char *")]}],
    "functions": [
        {"name": "accel_thing_create", "since": "0.3", "returns": entry("accel_status_t"),
         "parameters": [entry("const accel_thing_options_t *"), entry("accel_thing_t **", ownership="owned")]},
        {"name": "accel_thing_release", "since": "0.3", "returns": entry("void"),
         "parameters": [entry("accel_thing_t *", nullable=True)]},
    ],
}


class LockTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "api").mkdir()
        self.api = copy.deepcopy(API)
        self.create, self.release = self.api["functions"]
        self.options, self.value = self.api["structs"]

    def lock(self, command, *arguments):
        (self.root / "api/accel.json").write_text(json.dumps(self.api))
        result = subprocess.run([sys.executable, LOCK, command, self.root, *arguments], capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.stderr, "")
        return result


class Check(LockTest):
    def setUp(self):
        super().setUp()
        self.assertEqual(self.lock("write").returncode, 0)

    def assert_allowed(self):
        result = self.lock("check")
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def assert_breach(self, *parts):
        """One line, which says what and where."""
        result = self.lock("check")
        self.assertEqual((result.returncode, result.stdout.count("\n")), (1, 1), result.stdout)
        for part in ("api/lock/0.3.json: ", *parts):
            self.assertIn(part, result.stdout)

    def test_nothing_changed(self):
        self.assert_allowed()

    def test_texts_may_change(self):
        self.create["parameters"][0]["doc"] = "Better text."
        self.api["constants"][0]["value"] = 7
        self.assert_allowed()

    def test_additions(self):
        self.api["functions"].append(dict(self.create, name="accel_thing_copy"))
        self.api["constants"].append({"name": "ACCEL_NEW", "value": 1, "type": "int32_t"})
        self.api["structs"].append(dict(self.value, name="accel_other_t"))
        self.options["fields"].append(field("limit", "int64_t", 16, "ACCEL_UNSET_INT64"))
        self.options["size"] = 24
        self.value["fields"][0]["members"].append({"name": "text", "type": {"c": "const char *"}})
        self.create["parameters"][0]["nullable"] = True
        self.assert_allowed()

    def test_functions(self):
        for change, said in (
            (lambda: self.api["functions"].remove(self.release), "accel_thing_release: it is gone"),
            (lambda: self.create.update(since="0.2"), "since 0.3, and says 0.2"),
            (lambda: self.create.update(returns=entry("int32_t")), "it returned `accel_status_t` and returns `int32_t`"),
            (lambda: self.create["parameters"].pop(), "it had 2 parameters and has 1"),
            (lambda: self.create["parameters"].append(entry("int32_t")), "it had 2 parameters and has 3"),
            (lambda: self.create["parameters"][0].update(type={"c": "void *"}), "its parameter 1 was"),
            (lambda: self.create["parameters"][1].update(ownership="borrowed"),
             "its parameter 2 was `accel_thing_t ** owned` and is `accel_thing_t ** borrowed`"),
            (lambda: self.release["parameters"][0].update(nullable=False), "and is `accel_thing_t *`"),
        ):
            with self.subTest(said):
                change()
                self.assert_breach(said)
            self.api = copy.deepcopy(API)
            self.create, self.release = self.api["functions"]

    def test_structs(self):
        for change, said in (
            (lambda: self.options["fields"][1].update(offset=12), "`int32_t speed at 8, ACCEL_UNSET at first` and is"),
            (lambda: self.options["fields"][1].update(initial="0"), "and is `int32_t speed at 8, 0 at first`"),
            (lambda: self.options["fields"].pop(), "its field `int32_t reserved at 12, 0 at first` is gone"),
            (lambda: self.options.update(alignment=4), "had 16 bytes aligned to 8, and has 16 to 4"),
            (lambda: self.value.update(size=16), "had 8 bytes aligned to 8, and has 16 to 8"),
            (lambda: self.value["fields"].append(field("tag", "int32_t", 8, "0")), "and no struct_size"),
            (lambda: self.value["fields"][0]["members"].pop(0), "its field `int64_t as.integer` is gone"),
            (lambda: self.api["structs"].pop(), "accel_value_t: it is gone"),
        ):
            with self.subTest(said):
                change()
                self.assert_breach(said)
            self.api = copy.deepcopy(API)
            self.options, self.value = self.api["structs"]

    def test_other_names(self):
        for change, said in (
            (lambda: self.api["constants"][1].update(value=1), "ACCEL_OK: it was (accel_status_t)0 and is (accel_status_t)1"),
            (lambda: self.api["constants"].pop(), "ACCEL_OK: it is gone"),
            (lambda: self.api["aliases"][0].update(type="int64_t"), "accel_status_t: it was int32_t and is int64_t"),
            (lambda: self.api["handles"].pop(), "accel_thing_t: it is gone"),
            (lambda: self.api["callbacks"][0]["parameters"][0].update(nullable=True), "accel_log_fn: its parameter 1"),
        ):
            with self.subTest(said):
                change()
                self.assert_breach(said)
            self.api = copy.deepcopy(API)

    def test_which_releases_count(self):
        self.api["functions"].pop()
        for version, allowed in (("0.3.9", False), ("0.4.0", True), ("1.0.0", True)):
            self.api["version"] = version
            self.assertEqual(self.lock("check").returncode, 0 if allowed else 1, version)
        self.api = dict(copy.deepcopy(API), version="1.2.0")
        self.lock("write")
        self.api["functions"].pop()
        for version, allowed in (("1.2.5", False), ("1.3.0", False), ("1.1.9", True), ("2.0.0", True)):
            self.api["version"] = version
            self.assertEqual(self.lock("check").returncode, 0 if allowed else 1, version)

    def test_a_lock_is_not_replaced_by_a_breach(self):
        before = (self.root / "api/lock/0.3.json").read_text()
        self.api["functions"].pop()
        self.assertEqual(self.lock("write").returncode, 1)
        self.assertEqual((self.root / "api/lock/0.3.json").read_text(), before)


@unittest.skipIf(shutil.which("abidw") is None, "abigail-tools is not installed")
class Symbols(LockTest):
    def build(self, source):
        library = self.root / "libthing.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
        return library

    def compare(self, library):
        (self.root / "tools").mkdir(exist_ok=True)
        shutil.copy(LOCK, self.root / "tools")
        return subprocess.run([sys.executable, SYMBOLS_TEST, self.root, library], capture_output=True, text=True,
                              check=False)

    def test_symbols(self):
        self.assertEqual(self.lock("write", self.build("int one(void) { return 1; } int two(void) { return 2; }")).returncode, 0)
        added = "int one(void) { return 1; } int two(void) { return 2; } int three(void) { return 3; }"
        self.assertEqual(self.compare(self.build(added)).returncode, 0)
        result = self.compare(self.build("int one(void) { return 1; }"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("two", result.stdout)
        self.api["version"] = "0.4.0"
        self.lock("check")
        self.assertEqual(self.compare(self.build("int one(void) { return 1; }")).returncode, 77)


if __name__ == "__main__":
    unittest.main()
