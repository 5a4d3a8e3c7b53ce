#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""api/accel.cdef is C without a preprocessor, has all of the header, and LuaJIT works with it where it is installed.

usage: cdef_test.py SOURCE_ROOT LIBRARY COMPILER...
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, LIBRARY, *COMPILER = sys.argv[1:]
ROOT = pathlib.Path(ROOT)
CDEF = ROOT / "api/accel.cdef"
LUA = pathlib.Path(__file__).with_name("cdef.lua")


class Cdef(unittest.TestCase):
    def test_it_has_neither_macros_nor_bodies(self):
        text = CDEF.read_text()
        self.assertNotRegex(text, r"(?m)^\s*#")
        self.assertNotRegex(text, r"\)\s*\{|\binline\b|__attribute__|ACCEL_SINCE|ACCEL_OWNED")

    def test_it_has_what_the_header_has(self):
        api = json.loads((ROOT / "api/accel.json").read_text())
        words = set(re.findall(r"\w+", CDEF.read_text()))
        names = {entry["name"] for kind in ("constants", "aliases", "handles", "structs", "callbacks", "functions") for entry in api[kind]
                 if not entry.get("inline")}
        self.assertEqual(names - words, set())

    def test_a_compiler_finds_the_same_in_it(self):
        """In one translation unit: what is declared twice must be the same, and layouts are compared."""
        api = json.loads((ROOT / "api/accel.json").read_text())
        checks = "".join(f"typedef char size_{struct['name']}[sizeof({struct['name']}) == {struct['size']} ? 1 : -1];\n"
                         for struct in api["structs"])
        checks += "".join(f"typedef char is_{constant['name']}[{constant['name']} == {constant['value']} ? 1 : -1];\n"
                          for constant in api["constants"] if constant["type"] not in ("double", "text") and abs(constant["value"]) < 2**31)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "cdef.c")
            source.write_text("#include <stddef.h>\n#include <stdint.h>\n" + CDEF.read_text() + checks)
            done = subprocess.run([*COMPILER, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", source],
                                  stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(shutil.which("luajit"), "LuaJIT is not installed")
    def test_luajit_works_with_it(self):
        done = subprocess.run(["luajit", LUA, CDEF, LIBRARY], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


    @unittest.skipUnless(shutil.which("luajit"), "LuaJIT is not installed")
    def test_the_callback_wrapper_of_the_guide_works(self):
        (program,) = re.findall(r"^```lua\n(.*?)^```", (ROOT / "docs/a_binding_in_an_hour.md").read_text(), re.DOTALL | re.MULTILINE)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "guide.lua")
            source.write_text(program)
            done = subprocess.run(["luajit", source, CDEF, LIBRARY], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "7\nfalse\tSame takes 1 input, got 2\n"), done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
