#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wrap files of subprojects/ name archives that can be checked, and agree with their build files; read offline."""

import configparser
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUBPROJECTS = ROOT / "subprojects"


def read_wraps():
    """The wrap files by name."""
    wraps = {}
    for file in sorted(SUBPROJECTS.glob("*.wrap")):
        wraps[file.stem] = configparser.ConfigParser(interpolation=None)
        wraps[file.stem].read(file)
    return wraps


class Wraps(unittest.TestCase):
    def test_archives(self):
        for name, wrap in read_wraps().items():
            with self.subTest(name):
                archive = wrap["wrap-file"]
                self.assertRegex(archive["source_url"], r"^https://\S+\.(tar\.gz|tar\.xz|tgz)$")
                self.assertRegex(archive["source_hash"], r"^[0-9a-f]{64}$")
                self.assertRegex(archive["source_filename"], r"\.(tar\.gz|tar\.xz|tgz)$")
                version = re.search(r"(\d+\.\d+(\.\d+)?)$", archive["directory"]).group(1)
                self.assertIn(version, archive["source_url"])
                self.assertIn(version, archive["source_filename"])

    def test_build_files(self):
        for name, wrap in read_wraps().items():
            with self.subTest(name):
                build = (SUBPROJECTS / "packagefiles" / wrap["wrap-file"]["patch_directory"] / "meson.build").read_text()
                version = re.search(r"project\('\w+',(?: '\w+',)? version: '([\d.]+)'", build).group(1)
                self.assertTrue(wrap["wrap-file"]["directory"].endswith(version))
                for dependency in wrap["provide"].values() if "provide" in wrap else ():
                    self.assertRegex(build, rf"(?m)^{dependency} = ")

    def test_what_the_build_embeds(self):
        build = (SUBPROJECTS / "packagefiles/uplot/meson.build").read_text()
        for name in re.findall(r"uplot.get_variable\('(\w+)'\)", (ROOT / "src/report/meson.build").read_text()):
            self.assertRegex(build, rf"(?m)^{name} = ")

    def test_fallbacks_of_the_build(self):
        wraps = read_wraps()
        found = set()
        for file in (ROOT / "meson.build", ROOT / "tests" / "meson.build"):
            for name, dependency in re.findall(r"fallback: \['(\w+)', '(\w+)'\]", file.read_text()):
                self.assertIn(dependency, wraps[name]["provide"].values())
                found.add(name)
        self.assertLessEqual({"cjson", "cli11", "yaml", "xxhash", "libdeflate", "double_conversion", "fast_float", "zstd", "cmocka", "gtest"}, found)


if __name__ == "__main__":
    unittest.main()
