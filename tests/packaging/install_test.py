#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a build into a prefix, moves the prefix, and builds and runs programs of users against it.

usage: install_test.py SOURCE BUILD LIBTORCH MESON [ARGUMENT ...]

LIBTORCH is the folder of the build's LibTorch, MESON the command that runs Meson. CC, CXX and PKG_CONFIG name other tools than
cc, c++ and pkg-config. What needs CMake is skipped where it is missing.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, LIBTORCH = map(pathlib.Path, sys.argv[1:4])
MESON = sys.argv[4:]
CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"
CC = shlex.split(os.environ.get("CC", "cc")) + ["-std=c99", str(CONSUMER / "consumer.c")]
CXX = shlex.split(os.environ.get("CXX", "c++")) + ["-std=c++17", str(CONSUMER / "consumer.cpp")]
PKG_CONFIG = os.environ.get("PKG_CONFIG", "pkg-config")


def run(*command, **environment):
    """Runs a command without the settings that make the build's own files found; returns what it printed."""
    kept = {name: value for name, value in os.environ.items() if name not in ("ACCEL_PLUGIN_PATH", "LD_LIBRARY_PATH")}
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                            env={**kept, **environment}, timeout=60)
    if result.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def option(name):
    """The value of one of the build's options."""
    options = json.loads(run(*MESON, "introspect", "--buildoptions", BUILD))
    return next(known["value"] for known in options if known["name"] == name)


class PackagingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Installed(PackagingTest):
    """Programs that use the moved prefix."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        run(*MESON, "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", root / "staged")
        cls.prefix = root / "a moved prefix"  # with blanks
        (root / "staged" / option("prefix").lstrip("/")).rename(cls.prefix)
        cls.libdir = cls.prefix / option("libdir")

    def pkg_config(self, *arguments):
        return shlex.split(run(PKG_CONFIG, *arguments, "accel", PKG_CONFIG_PATH=str(self.libdir / "pkgconfig")))

    def compile(self, compiler, flags):
        """Builds the program with the flags; returns its path."""
        program = self.folder / "consumer"
        run(*compiler, "-Wall", "-Wextra", "-pedantic", "-Werror", "-o", program, *flags)
        return program

    def compile_shared(self, compiler):
        return self.compile(compiler, self.pkg_config("--cflags", "--libs") + [f"-Wl,-rpath,{self.libdir}"])

    def test_pkg_config(self):
        for compiler in (CC, CXX):
            self.assertEqual(run(self.compile_shared(compiler)), "[2,2]\n")

    def test_pkg_config_static(self):
        flags = self.pkg_config("--static", "--cflags", "--libs")
        for compiler in (CC, CXX):
            program = self.compile(compiler, ["-l:libaccel.a" if flag == "-laccel" else flag for flag in flags])
            self.assertEqual(run(program), "[2,2]\n")

    def test_other_languages_find_the_description(self):
        for name in ("accel.json", "accel.cdef"):
            installed = self.prefix / option("datadir") / "accel" / name
            self.assertEqual(installed.read_text(), (SOURCE / "api" / name).read_text())

    def test_two_processes_find_the_plugin(self):
        program = self.compile_shared(CC)
        launcher = self.prefix / option("bindir") / "accel"
        self.assertEqual(run(launcher, "launch", "--num-processes", "2", "--", program), "[2,2,4,4]\n")

    def test_cmake(self):
        if shutil.which("cmake") is None:
            self.skipTest("cmake is not installed")
        run("cmake", "-S", CONSUMER, "-B", self.folder, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", self.folder)
        for program in ("shared", "static"):
            self.assertEqual(run(self.folder / program), "[2,2]\n")

    def test_cmake_fetch_content(self):
        """As docs/embedding.md says it; in the root of an archive, whose path has blanks, and where it is installed."""
        if shutil.which("cmake") is None:
            self.skipTest("cmake is not installed")
        archive = self.folder / "an archive"
        shutil.copytree(self.prefix, archive, symlinks=True)
        installed = archive / option("datadir") / "accel" / "CMakeLists.txt"
        shutil.copy(installed, archive)
        engine = self.folder / "engine"
        shutil.copytree(CONSUMER, engine)
        shown = (SOURCE / "docs" / "embedding.md").read_text().split("```cmake\n")[1].split("```")[0]
        offline, changes = re.subn(r"URL \S+\)", 'SOURCE_DIR "${ACCEL}")', shown)
        self.assertEqual(changes, 1)
        (engine / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.16)\nproject(game C)\nadd_executable(game consumer.c)\n{offline}")
        for place, source in enumerate((archive, installed.parent)):
            build = self.folder / str(place)
            run("cmake", "-S", engine, "-B", build, f"-DACCEL={source}")
            run("cmake", "--build", build)
            self.assertEqual(run(build / "game"), "[2,2]\n")

    def test_cmake_refuses_another_minor_version(self):
        if shutil.which("cmake") is None:
            self.skipTest("cmake is not installed")
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(consumer C)\nfind_package(accel 0.0.9 REQUIRED)\n")
        with self.assertRaisesRegex(AssertionError, r"compatible\s+with requested version"):
            run("cmake", "-S", self.folder, "-B", self.folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")

    def test_meson(self):
        run(*MESON, "setup", self.folder, CONSUMER, PKG_CONFIG_PATH=str(self.libdir / "pkgconfig"))
        run(*MESON, "compile", "-C", self.folder)
        self.assertEqual(run(self.folder / "consumer"), "[2,2]\n")

    def test_no_file_names_the_build(self):
        for file in (*self.libdir.glob("pkgconfig/*"), *self.libdir.glob("cmake/accel/*")):
            content = file.read_text().replace(str(LIBTORCH), "")
            for folder in (SOURCE, BUILD, option("prefix")):
                self.assertNotIn(f"{folder}/", content, file)


class Configured(PackagingTest):
    """Settings of a build that is configured and not built."""

    SETUP = (*MESON, "setup", "-Dbench=false", "-Dexamples=false", "-Dtests=false", f"-Dlibtorch={LIBTORCH}")

    def test_libtorch_inside_the_prefix(self):
        run(*self.SETUP, f"-Dprefix={LIBTORCH.parent}", "-Dlibdir=lib", self.folder, SOURCE)
        description = (self.folder / "meson-private" / "accel.pc").read_text()
        self.assertIn("prefix=${pcfiledir}/../..\n", description)
        self.assertIn(f"torch_libdir=${{prefix}}/{LIBTORCH.name}/lib\n", description)
        self.assertNotIn(str(LIBTORCH), description)

    def test_as_a_subproject(self):
        user = self.folder / "user"
        shutil.copytree(CONSUMER, user)
        (user / "subprojects").mkdir()
        (user / "subprojects" / "accel").symlink_to(SOURCE)
        (user / "subprojects" / "packagecache").symlink_to(SOURCE / "subprojects/packagecache")  # so that nothing is downloaded
        run(*MESON, "setup", "--force-fallback-for=accel", self.folder / "build", user, LIBTORCH=str(LIBTORCH))
        targets = json.loads(run(*MESON, "introspect", "--targets", self.folder / "build"))
        names = {target["name"] for target in targets}
        self.assertLessEqual({"consumer", "accel", "accel_ucx"}, names)
        self.assertFalse({name for name in names if "test" in name})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
