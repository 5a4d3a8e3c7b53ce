#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tools of tools/, and checks of documents, on small made-up inputs."""

import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import defined_tests

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
CHECKS = pathlib.Path(__file__).resolve().parent


def run(tool, *arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "LIBTORCH"}
    return subprocess.run([sys.executable, TOOLS / tool, *map(str, arguments)], capture_output=True, text=True,
                          check=False, env={**kept, **environment})


def write(file, content=""):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


class ToolTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make_libtorch(self, folder, major=2, minor=13):
        for name in ("include/ATen/core/Tensor.h", "lib/libtorch_cpu.so", "lib/libc10.so"):
            write(folder / name)
        version = f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n"
        write(folder / "include/torch/headeronly/version.h", version + "#define TORCH_VERSION_PATCH 1\n")


class Programs(unittest.TestCase):
    def test_what_names_its_interpreter_can_be_run(self):
        for file in sorted(TOOLS.rglob("*")):
            if file.suffix in (".sh", ".py") and file.name != "__main__.py":
                with self.subTest(file=file.name):
                    self.assertEqual(os.access(file, os.X_OK), file.read_bytes().startswith(b"#!"))


class FindLibtorch(ToolTest):
    def setUp(self):
        super().setUp()
        for name, version in (("libtorch", "2.13.0"), ("libtorch-2.11.0", "2.11.0"), ("libtorch-2.12.1", "2.12.1")):
            write(self.folder / f"tools/{name}.txt", f"# why\ntorch=={version} \\\n    --hash=sha256:{'0' * 64}\n")

    def assert_refused(self, result, *words):
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr.count("\n"), 1)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_option_before_environment_before_default(self):
        for name in ("option", "environment", "build/deps/torch"):
            self.make_libtorch(self.folder / name)
        for option, environment, expected in (
            ("option", "environment", "option"), ("", "environment", "environment"), ("", "", "build/deps/torch"),
        ):
            result = run("find_libtorch.py", self.folder / option if option else "", self.folder,
                         LIBTORCH=str(self.folder / environment) if environment else "")
            folder = self.folder / expected
            self.assertEqual(result.stdout, f"{folder}/include\n{folder}/lib\n2.13.1\n\n", result.stderr)

    def test_none(self):
        self.assert_refused(run("find_libtorch.py", "", self.folder), "tools/setup.sh", "$LIBTORCH")

    def test_a_folder_that_is_none(self):
        self.assert_refused(run("find_libtorch.py", self.folder, self.folder), str(self.folder), "is missing")

    def test_versions(self):
        for minor, is_known in ((10, False), (11, True), (15, True), (16, False)):
            self.make_libtorch(self.folder, minor=minor)
            result = run("find_libtorch.py", self.folder, self.folder)
            self.assertEqual(result.returncode, 0 if is_known else 1)
        self.assert_refused(result, "2.16.1", "2.11 to 2.13")

    def test_a_version_stands_for_its_folder(self):
        self.make_libtorch(self.folder / "build/deps/torch")
        self.assert_refused(run("find_libtorch.py", "2.11.0", self.folder), "2.11.0", "tools/setup.sh --libtorch 2.11.0")
        self.make_libtorch(self.folder / "build/deps/libtorch-2.11.0/torch", minor=11)
        for version, folder in (("2.11.0", "libtorch-2.11.0/torch"), ("2.13.0", "torch")):
            for result in (run("find_libtorch.py", version, self.folder), run("find_libtorch.py", "", self.folder, LIBTORCH=version)):
                self.assertEqual(result.stdout.split("\n")[0], f"{self.folder}/build/deps/{folder}/include", result.stderr)
        for version in ("2.12.0", "2.12"):
            self.assert_refused(run("find_libtorch.py", version, self.folder), f"{version} is not a pinned version", "2.13.0, 2.11.0, 2.12.1")

    def test_what_is_not_tried_is_called_so(self):
        for minor, is_tried in ((11, True), (12, True), (13, True), (14, False), (15, False)):
            self.make_libtorch(self.folder, minor=minor)
            warning = run("find_libtorch.py", self.folder, self.folder).stdout.split("\n")[3]
            self.assertEqual(not warning, is_tried, warning)
        self.assertIn("LibTorch 2.15.1 is not tried: 2.11.0, 2.12.1, 2.13.0 are", warning)

    def test_version_from_python(self):
        self.make_libtorch(self.folder)
        (self.folder / "include/torch/headeronly/version.h").unlink()
        self.assert_refused(run("find_libtorch.py", self.folder, self.folder), "does not tell its version")
        write(self.folder / "version.py", "__version__ = '2.14.0+cpu'\n")
        self.assertTrue(run("find_libtorch.py", self.folder, self.folder).stdout.split("\n")[2] == "2.14.0")


class FindCuda(ToolTest):
    HEADERS = ("cuda_runtime_api.h", "crt/host_defines.h", "nv/target", "cublas_v2.h", "nccl.h")

    def test_a_libtorch_without_cuda(self):
        result = run("find_cuda.py", "", self.folder)
        self.assertEqual((result.returncode, result.stdout.split("\n")[0]),
                         (0, f"{self.folder} has no libtorch_cuda.so: this LibTorch is one without CUDA"))

    def test_headers_of_the_toolkit_and_of_packages(self):
        write(self.folder / "torch/lib/libtorch_cuda.so")
        for header in self.HEADERS[:-1]:
            write(self.folder / "toolkit/include" / header)
        write(self.folder / "nvidia/nccl/include/nccl.h")
        result = run("find_cuda.py", self.folder / "toolkit", self.folder / "torch/lib", CUDA_HOME="")
        missing, *folders = result.stdout.split("\n")
        self.assertEqual(missing, "")
        self.assertEqual(folders[0], str(self.folder / "toolkit/include"))

    def test_a_header_that_is_missing(self):
        write(self.folder / "torch/lib/libtorch_cuda.so")
        for header in self.HEADERS[1:]:
            write(self.folder / "toolkit/include" / header)
        result = run("find_cuda.py", self.folder / "toolkit", self.folder / "torch/lib", CUDA_HOME="")
        self.assertRegex(result.stdout, r"^(cuda_runtime_api\.h is in none of .*: give the CUDA toolkit by -Dcuda=FOLDER|$)")


class FetchLibtorch(ToolTest):
    """With wheels in the cache and a pip that can do nothing."""

    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache" / "libaccel"
        self.cache.mkdir(parents=True)
        self.wheel = self.cache / f"torch-1.0-cp311-cp311-manylinux_2_28_{platform.machine()}.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name in ("torch/include/a.h", "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_cuda.so", "torch/x.py"):
                archive.writestr(name, name)
        self.pin(hashlib.sha256(self.wheel.read_bytes()).hexdigest())

    def pin(self, digest):
        write(self.folder / "tools/libtorch.txt", f"# why\ntorch==1.0 \\\n    --hash=sha256:{digest}\n")

    def fetch(self, *version):
        return run("fetch_libtorch.py", *version, self.folder, "false", XDG_CACHE_HOME=str(self.folder / "cache"))

    def test_extracts_what_a_build_needs(self):
        result = self.fetch()
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        torch = self.folder / "build/deps/torch"
        files = sorted(file.relative_to(torch).as_posix() for file in torch.rglob("*") if file.is_file())
        self.assertEqual(files, ["include/a.h", "lib/libtorch_cpu.so"])
        self.assertFalse((self.folder / "build/deps/partial").exists())

    def test_versions_live_beside_each_other(self):
        self.assertEqual(self.fetch().returncode, 0)
        (self.folder / "tools/libtorch.txt").rename(self.folder / "tools/libtorch-1.0.txt")
        write(self.folder / "tools/libtorch.txt", "torch==2.0 --hash=sha256:0\n")
        default = self.folder / "build/deps/torch/include/a.h"
        default.write_text("of the default")
        result = self.fetch("--libtorch", "1.0")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue((self.folder / "build/deps/libtorch-1.0/torch/lib/libtorch_cpu.so").exists())
        self.assertEqual(default.read_text(), "of the default")
        for unknown in ("1.1", "torch", "1"):
            result = self.fetch("--libtorch", unknown)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(f"{unknown} is not a pinned version: expected one of 2.0, 1.0;", result.stderr)

    def test_the_pinned_versions(self):
        sys.path.insert(0, str(TOOLS))
        self.addCleanup(sys.path.remove, str(TOOLS))
        import fetch_libtorch
        import find_libtorch
        versions = find_libtorch.pinned_versions(TOOLS.parent)
        self.assertEqual({version.rpartition(".")[0] for version in versions}, {"2.11", "2.12", "2.13"})
        for version, (pins, _) in versions.items():
            with self.subTest(version=version):
                requirements = fetch_libtorch.requirements(pins)
                self.assertEqual([name.split("==")[0] for name in requirements], ["torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti"])
                self.assertTrue(all(len(hashes) == 2 for hashes in requirements.values()), requirements)
                self.assertEqual(set(fetch_libtorch.download_sizes(pins)), {name.split("==")[0] for name in requirements})

    def test_replaces_an_older_one(self):
        write(self.folder / "build/deps/torch/include/old.h")
        self.assertEqual(self.fetch().returncode, 0)
        self.assertFalse((self.folder / "build/deps/torch/include/old.h").exists())

    def test_a_damaged_wheel_is_not_used(self):
        self.wheel.write_bytes(b"damaged")
        # No waiting between the attempts to download it again: that is for networks.
        process = subprocess.run([sys.executable, "-c", (
            "import runpy, sys, time; time.sleep = lambda seconds: None; "
            f"sys.argv = ['fetch_libtorch.py', {str(self.folder)!r}, 'false']; sys.path.insert(0, {str(TOOLS)!r}); "
            f"runpy.run_path({str(TOOLS / 'fetch_libtorch.py')!r}, run_name='__main__')")],
            capture_output=True, text=True, check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")})
        self.assertEqual(process.returncode, 1)
        self.assertIn("torch==1.0 cannot be downloaded", process.stderr)
        self.assertFalse((self.folder / "build/deps/torch").exists())
        self.assertFalse(self.wheel.exists())


class CheckLibtorch(ToolTest):
    """A source and two LibTorches of one header each."""

    def setUp(self):
        super().setUp()
        write(self.folder / "tools/libtorch.txt", "torch==2.13.0\n")
        write(self.folder / "tools/libtorch-2.11.0.txt", "torch==2.11.0\n")
        built_with = self.folder / "build/deps/torch/include"
        write(built_with / "ATen/core/Tensor.h", "#pragma once\nstruct Tensor { int of_2_13; };\n")
        for place, name in (("src", "a"), ("tests/simulated_device", "b")):
            write(self.folder / place / f"{name}.cpp", f"#include <ATen/core/Tensor.h>\nint {name}(Tensor tensor) {{ return tensor.of_2_11; }}\n")
        write(self.folder / "build/folder/compile_commands.json", json.dumps([
            {"directory": str(self.folder), "file": str(self.folder / name),
             "command": f"c++ -isystem{built_with} -isystem{built_with}/torch/csrc/api/include -std=c++17 -MD -MF x.d -o x.o -c {name}"}
            for name in ("src/a.cpp", "tests/simulated_device/b.cpp")]))

    def check(self):
        return run("check_libtorch.py", self.folder, self.folder / "build/folder", "2.11.0")

    def test_skipped_where_it_is_not_fetched(self):
        result = self.check()
        self.assertEqual(result.returncode, 77)
        self.assertIn("tools/setup.sh --libtorch 2.11.0 fetches it", result.stdout)

    # Regression: the UCX plugin did not compile with LibTorch 2.11, which the build took.
    def test_compiles_with_the_other_headers(self):
        header = self.folder / "build/deps/libtorch-2.11.0/torch/include/ATen/core/Tensor.h"
        write(header, "#pragma once\nstruct Tensor { int of_2_11; };\n")
        result = self.check()
        self.assertEqual((result.returncode, result.stdout), (0, "2 sources compile with the headers of LibTorch 2.11.0\n"))
        header.write_text("#pragma once\nstruct Tensor {};\n")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/a.cpp", result.stdout)
        self.assertIn("of_2_11", result.stdout)
        self.assertFalse(list(self.folder.rglob("*.o")))


class SummarizeTests(ToolTest):
    def summarize(self, *entries, status=0):
        log = self.folder / "testlog.json"
        lines = [json.dumps({"name": name, "result": result, "stdout": stdout}) for name, result, stdout in entries]
        write(log, "\n".join(lines))
        result = run("summarize_tests.py", log, status)
        return result.stdout.splitlines()[-1], result.returncode

    def test_counts_cases(self):
        self.assertEqual(self.summarize(("a", "OK", "[  PASSED  ] 12 tests.\n"), ("b", "OK", "nothing")),
                         ("13 passed, 0 failed", 0))
        unittest_output = "Ran 5 tests in 0.1s\n\nOK (skipped=2)\n"
        self.assertEqual(self.summarize(("u", "OK", unittest_output)), ("3 passed, 0 failed", 0))
        julia_output = "Test Summary: | Pass  Broken  Total\nAll           |    7       1      8\n  part        |    7       1      8\n"
        self.assertEqual(self.summarize(("j", "OK", julia_output)), ("7 passed, 0 failed", 0))

    def test_counts_cases_of_go(self):
        output = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n--- SKIP: TestB (0.00s)\n--- FAIL: TestC (0.00s)\n    --- FAIL: TestC/part (0.00s)\n"
        self.assertEqual(self.summarize(("g", "FAIL", output), status=1), ("1 passed, 1 failed", 1))

    def test_counts_failures(self):
        output = "[  PASSED  ] 3 tests.\n[  FAILED  ] 2 tests, listed below:\n"
        self.assertEqual(self.summarize(("a", "FAIL", output), status=1), ("3 passed, 2 failed", 1))
        self.assertEqual(self.summarize(("a", "TIMEOUT", ""), status=1), ("0 passed, 1 failed", 1))
        julia_output = "Test Summary: | Pass  Fail  Error  Total\nAll           |    7     1      2     10\n"
        self.assertEqual(self.summarize(("j", "FAIL", julia_output), status=1), ("7 passed, 3 failed", 1))

    def test_shows_what_a_failed_one_said(self):
        lines = [f"line {i}" for i in range(100)]
        lines[40] = "some_test.cpp:12: Failure"
        write(self.folder / "testlog.json", json.dumps({"name": "a", "result": "FAIL", "stdout": "\n".join(lines)}))
        shown = run("summarize_tests.py", self.folder / "testlog.json", 1).stdout.splitlines()
        self.assertEqual(shown[:4], ["failed: a (fail)", "  | line 38", "  | line 39", "  | some_test.cpp:12: Failure"])
        self.assertEqual(shown[-2:], ["  | line 62", "0 passed, 1 failed"])
        write(self.folder / "testlog.json", json.dumps({"name": "a", "result": "TIMEOUT", "stdout": "\n".join(lines[50:])}))
        self.assertIn("  | line 99", run("summarize_tests.py", self.folder / "testlog.json", 1).stdout.splitlines())

    def test_no_results_are_a_failure(self):
        self.assertEqual(self.summarize(status=1), ("0 passed, 1 failed", 1))
        shown = run("summarize_tests.py", self.folder / "nowhere.json", 0)
        self.assertEqual((shown.returncode, shown.stdout.splitlines()[-1]), (1, "0 passed, 1 failed"))

    def test_skipped_ones_do_not_count(self):
        self.assertEqual(self.summarize(("a", "SKIP", ""), ("b", "OK", "")), ("1 passed, 0 failed", 0))


# Writes the log of one test, which Meson names after the setup.
FAKE_MESON = """#!/bin/sh
echo meson "$@" >>{folder}/calls
while [ $# -gt 0 ]; do
  case $1 in
    -C) build=$2 ;;
    --setup) setup=$(echo "$2" | tr : _) ;;
  esac
  shift
done
mkdir -p "{folder}/$build/meson-logs"
echo '{{"name": "a", "result": "OK", "stdout": ""}}' >"{folder}/$build/meson-logs/testlog-$setup.json"
"""


class RunsOfTests(ToolTest):
    """tools/test.sh and tools/run_tests.sh, with scripts in the place of those that they call."""

    def setUp(self):
        super().setUp()
        (self.folder / "tools").mkdir()
        for tool in ("test.sh", "run_tests.sh"):
            shutil.copy2(TOOLS / tool, self.folder / "tools")
        for tool in ("tools/setup.sh", "tools/build.sh", "bin/meson"):
            write(self.folder / tool, f"#!/bin/sh\necho {pathlib.Path(tool).name} \"$@\" >>{self.folder}/calls\n")
            (self.folder / tool).chmod(0o755)
        (self.folder / "bin/meson").write_text(FAKE_MESON.format(folder=self.folder))
        for tool in ("summarize_tests.py", "run_ninja.py"):
            shutil.copy2(TOOLS / tool, self.folder / "tools")
        for folder in ("build/release", "build/develop"):
            write(self.folder / folder / "build.ninja")

    def run_script(self, name, *arguments):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        done = subprocess.run([self.folder / "tools" / name, *arguments], capture_output=True, text=True, check=False, env=environment)
        calls = self.folder / "calls"
        return done.returncode, done.stdout.splitlines()[-1:], done.stderr, calls.read_text().splitlines() if calls.exists() else []

    def test_what_each_runs(self):
        for script, arguments, setup, rest in (
            ("test.sh", [], "default", ""), ("test.sh", ["--all"], "all", ""), ("test.sh", ["-C", "build/develop", "--all", "-Dx=a b"], "all", ""),
            ("test.sh", ["--ci"], "ci", ""), ("run_tests.sh", ["build/release"], "default", ""), ("run_tests.sh", ["build/release", "--all"], "all", ""),
            ("run_tests.sh", ["build/release", "--ci"], "ci", ""),
            ("run_tests.sh", ["build/release", "--suite", "peer", "tidy"], "all", " --suite peer tidy"),
        ):
            with self.subTest(script=script, arguments=arguments):
                (self.folder / "calls").unlink(missing_ok=True)
                status, last, _, calls = self.run_script(script, *arguments)
                self.assertEqual((status, last), (0, ["1 passed, 0 failed"]))
                folder = "build/develop" if "build/develop" in arguments else "build/release"
                self.assertTrue(calls[-1].startswith(f"meson test -C {folder} --setup libaccel:{setup} "), calls)
                self.assertTrue(calls[-1].endswith(f" --timeout-multiplier 2{rest}"), calls)
                if script == "test.sh":
                    self.assertIn(f"build.sh -C {folder} {'-Dx=a b ' if '-Dx=a b' in arguments else ''}-Dtests=true", calls[1])

    def test_wrong_arguments_are_said_and_nothing_is_built(self):
        for script, arguments, said in (("test.sh", ["--al"], "test: --al: expected --all, --ci, -C FOLDER or -Doption=value"), ("test.sh", ["-C"], "test: -C: "),
                                        ("test.sh", ["tidy"], "test: tidy: expected"), ("run_tests.sh", [], "run_tests: nothing: expected the folder"),
                                        ("run_tests.sh", ["build/nowhere"], "run_tests: build/nowhere: expected")):
            with self.subTest(script=script, arguments=arguments):
                status, last, errors, calls = self.run_script(script, *arguments)
                self.assertEqual((status, last, calls), (2, ["0 passed, 1 failed"], []))
                self.assertEqual((errors.startswith(said), errors.count("\n")), (True, 1), errors)


class Promises(ToolTest):
    def check(self, *rows):
        """What is said of a build with one test of every run and two others."""
        tests = [("engine/loader", []), ("engine/loader_combinations", ["thorough"]), ("peer/peer", ["toolchains"])]
        write(self.folder / "meson-info/intro-tests.json", json.dumps(
            [{"name": name.split("/")[1], "suite": [f"libaccel:{suite}" for suite in (name.split("/")[0], *more)]} for name, more in tests]))
        write(self.folder / "docs/testing.md", "\n".join(("## What each test proves", "", "| promise | every run | only in `--all` |", "| --- | --- | --- |",
                                                          *rows, "")))
        return run(CHECKS / "promises_test.py", self.folder, self.folder)

    def test_each_test_has_one_row(self):
        loaders, peer = "| loaders | `engine` | `engine/*_combinations` |", "| Accelerate | `engine/loader` | `peer` |"
        self.assertEqual(self.check(loaders, peer).stdout, "each of 3 tests has its row\n")
        for rows, said in (
            ([loaders], "peer/peer is in no row; expected it in the third column of one"),
            ([loaders, "| Accelerate | | `peer` |"], "Accelerate: expected a test of every run"),
            ([loaders, "| Accelerate | `peer` | |"], "Accelerate: peer is no test of every run"),
            ([loaders, peer, "| gone | `engine/sampler` | |"], "gone: engine/sampler is no test of every run"),
            ([loaders, peer, "| again | `engine` | |"], "engine is in 2 rows: loaders; again"),
        ):
            with self.subTest(said=said):
                result = self.check(*rows)
                self.assertEqual((result.returncode, said in result.stdout), (1, True), result.stdout)


class CheckImports(ToolTest):
    def check(self, *options, **files):
        for name, content in {"__init__": "", **files}.items():
            write(self.folder / "package" / f"{name}.py", content)
        result = run("check_imports.py", self.folder / "package", *options)
        return result.returncode, result.stdout

    def test_floors_are_counted_through_folders_and_functions(self):
        write(self.folder / "package/inner/c.py", "from ..b import name\nfrom .. import other_name\n")
        status, output = self.check("--draw", a="import json\n", b="def late():\n    from . import a, inner\n")
        self.assertEqual(status, 0, output)
        self.assertIn("1\n  (the package): \n  a: \n2\n  b:  a\n3\n  inner.c: b \n", output)
        self.assertIn("4 modules on 3 floors, and no circle", output)

    def test_a_circle_is_named(self):
        for late in ("def late():\n    from .a import A\n", "if TYPE_CHECKING:\n    from .a import A\n"):
            with self.subTest(late=late):
                self.assertEqual(self.check(a="from . import b\n", b=late, above="from . import a\n"),
                                 (1, "modules import each other: a -> b -> a; expected what they share in a module below them\n"))

    def test_a_chain_that_is_too_long(self):
        status, output = self.check(**{f"m{number}": f"from . import m{number - 1}" for number in range(1, 30)}, m0="")
        self.assertEqual((status, "m29 is on floor 30; expected at most" in output), (1, True), output)


class CheckWords(ToolTest):
    def check(self, **files):
        for name, content in files.items():
            write(self.folder / name.replace("__", "/").replace("_DOT_", "."), content)
        result = run("check_words.py", self.folder)
        return result.returncode, result.stdout

    def test_another_word_is_named_with_its_place(self):
        for name, before, after in (("docs__data_DOT_md", "# Data\n\n", "\n"), ("include__accel__a_DOT_h", "/* First.\n *\n * ", " */\n"),
                                    ("bindings__rust__accel__src__a_DOT_rs", "struct A;\n\n/// ", "\n"),
                                    ("bindings__julia__src__a_DOT_jl", "a = 1\n\n\"\"\"", "\"\"\"\n"),
                                    ("bindings__python__accel__a_DOT_py", "import os\n\ndef a(): \"\"\"", "\"\"\"\n")):
            with self.subTest(name=name):
                status, output = self.check(**{name: f"{before}Rank 0 is told the number.{after}"})
                self.assertEqual((status, f"{name.replace('__', '/').replace('_DOT_', '.')}:3: " in output, 'expected "notified"' in output),
                                 (1, True, True), output)
                self.assertEqual(self.check(**{name: f"{before}Rank 0 receives the number.{after}"})[0], 0)

    def test_code_links_and_plain_uses_stay(self):
        page = "# Data\n\nCall `told()`.\n\n```c\ntold(); // kept\n```\n\nA [page](kept.md) has the key \"kept\". Use the reference implementation.\n"
        self.assertEqual(self.check(docs__data_DOT_md=page)[0], 0)

    def test_a_sentence_without_a_subject(self):
        for beginning in ("Of a sharded parameter, its part.", "That of the plugin.", "The tree. What is left over.", "As above."):
            with self.subTest(beginning=beginning):
                status, output = self.check(docs__data_DOT_md=f"# Data\n\n{beginning}\n")
                self.assertEqual((status, "expected its subject" in output), (1, True), output)
        for right in ("What is a rank?", "Ask for the tree, e.g. What.", "Thatcher is a name.", "As-is copies are made."):
            with self.subTest(right=right):
                self.assertEqual(self.check(docs__data_DOT_md=f"# Data\n\n{right}\n")[0], 0)

    def test_long_sentences_of_a_first_page(self):
        long = "Each of these words " + "and the next of these words " * 4 + "is in one sentence.\n"
        self.assertIn("words a sentence", self.check(docs__data_DOT_md=f"# Data\n\n{long}")[1])
        self.assertEqual(self.check(docs__data_DOT_md=f"# Data\n\nShort.\n\n## One\n\nShort.\n\n## Two\n\n{long}")[0], 0)
        self.assertEqual(self.check(docs__data_DOT_md="", docs__tutorial_DOT_md=f"# Data\n\n## One\n\n## Two\n\n{long}")[0], 1)


class CheckLayers(ToolTest):
    def check(self, heavy_sources="", cuda_lines="", **files):
        for name, content in files.items():
            name = name.replace("__", "/").replace("_hpp", ".hpp").replace("_cpp", ".cpp")
            write(self.folder / "src" / name, content)
        write(self.folder / "tools" / "heavy_sources.txt", heavy_sources)
        write(self.folder / "tools" / "cuda_lines.txt", cuda_lines)
        result = run("check_layers.py", self.folder)
        return result.returncode, result.stdout

    def test_downwards_is_allowed(self):
        self.assertEqual(self.check(base__a_hpp="", nn__b_hpp='#include "base/a.hpp"\n')[0], 0)
        self.assertEqual(self.check(comm__ucx__host__c_hpp="", comm__ucx__progress__d_hpp='#include "comm/ucx/host/c.hpp"\n',
                                    comm__ucx__e_cpp='#include "comm/ucx/progress/d.hpp"\n')[0], 0)

    def test_unnamed_namespaces_that_have_a_name_twice(self):
        text = "namespace accel::nn {\nnamespace {\nRULE\n}  // namespace\n}  // namespace accel::nn\n"
        for rule in ("struct Names {};", "enum class Names { kOne };", "constexpr int kNames = 1;", "int names(int a) {"):
            with self.subTest(rule=rule):
                text_of_rule = text.replace("RULE", rule)
                status, output = self.check(nn__a_cpp=text_of_rule, nn__deep__b_cpp=text_of_rule)
                self.assertEqual((status, "of the unnamed namespace is in src/nn/a.cpp, too; expected another name" in output), (1, True), output)
                # Those of other namespaces do not meet.
                self.assertEqual(self.check(nn__a_cpp=text_of_rule, nn__deep__b_cpp=text_of_rule.replace("accel::nn", "accel::data"))[0], 0)
        functions = [text.replace("RULE", f"int names({kind} a) {{") for kind in ("int", "long")]
        self.assertEqual(self.check(nn__a_cpp=functions[0], nn__deep__b_cpp=functions[1])[0], 0)
        aliases = [text.replace("RULE", f"using Names = {word};") for word in ("int", "long")]
        self.assertEqual(self.check(nn__a_cpp=aliases[0], nn__deep__b_cpp=aliases[0])[0], 0)
        self.assertEqual(self.check(nn__a_cpp=aliases[0], nn__deep__b_cpp=aliases[1])[0], 1)

    def test_a_kind_of_parallelism_is_known_to_itself_and_to_the_place_that_chooses(self):
        include = '#include "parallel/ddp/kind.hpp"\n'
        status, output = self.check(parallel__ddp__kind_hpp="", parallel__ddp__part_cpp=include,
                                    parallel__parallelize_cpp=include)
        self.assertEqual((status, output), (0, "the rules of src/ hold\n"))
        for name in ("parallel__localsgd__a_cpp", "parallel__model_cpp", "accelerator__a_cpp", "capi__a_cpp"):
            with self.subTest(name=name):
                status, output = self.check(**{name: include})
                self.assertEqual(status, 1)
                self.assertIn("which is one kind of parallelism; expected parallel/parallel_model.hpp", output)

    def test_heavy_headers_need_an_entry_that_is_used(self):
        script = "#include <torch/script.h>\n"
        self.assertEqual(self.check(heavy_sources="nn/b.cpp\n", nn__b_cpp=script)[0], 0)
        status, output = self.check(heavy_sources="nn/b.cpp\nnn/c.cpp\n", nn__b_cpp=script, nn__c_cpp="")
        self.assertEqual(status, 1)
        self.assertIn("src/nn/c.cpp: needs no heavy header any more", output)

    def test_one_kind_of_device_is_named_where_it_must_be(self):
        uses = "if (tensor.is_cuda()) wait();\nreturn at::kCUDA;\n"
        for name in ("comm__nccl__entry_cpp", "tensor__device__device_cpp", "tensor__device__device_availability_cpp"):
            with self.subTest(name=name):
                self.assertEqual(self.check(**{name: uses})[0], 0)
        for content in ("#include <ATen/cuda/CUDAContext.h>", "return tensor.is_cuda();", "device = at::kCUDA;",
                        "key = c10::DispatchKey::CUDA;", 'name = "cuda";', "// on CUDA only"):
            with self.subTest(content=content):
                status, output = self.check(tensor__dlpack_cpp=content + "\n")
                self.assertEqual(status, 1)
                self.assertIn("src/tensor/dlpack.cpp: names CUDA in 1 lines, expected 0", output)

    def test_the_list_of_lines_that_name_cuda_only_shrinks(self):
        uses = "if (tensor.is_cuda()) wait();\nreturn at::kCUDA;\n"
        self.assertEqual(self.check(cuda_lines="src/nn/b.cpp 2  # why\n", nn__b_cpp=uses)[0], 0)
        for allowed, expected in (("1", "names CUDA in 2 lines, expected 1"), ("3", "lower the number")):
            with self.subTest(allowed=allowed):
                status, output = self.check(cuda_lines=f"src/nn/b.cpp {allowed}\n", nn__b_cpp=uses)
                self.assertEqual(status, 1)
                self.assertIn(expected, output)
        status, output = self.check(cuda_lines="src/nn/gone.cpp 1\n", nn__b_cpp="")
        self.assertIn("src/nn/gone.cpp: names CUDA in 0 lines", output)

    def test_folders_are_small_and_names_differ(self):
        for index in range(40):
            write(self.folder / f"src/nn/file_{index}.cpp", "")
        self.assertEqual(self.check(capi__models__file_0_cpp="")[0], 0)
        status, output = self.check(nn__one_more_hpp="", optim__file_7_hpp="")
        self.assertEqual(status, 1)
        self.assertIn("src/nn: 41 files; expected at most 40", output)
        self.assertIn("file_7 is in nn and in optim; expected names that differ", output)

    def test_units_have_no_cycles(self):
        # Neither the headers nor the sources of a and b include each other, but the units do.
        files = {"nn__a_cpp": '#include "nn/b.hpp"\n', "nn__a_hpp": "", "nn__b_hpp": '#include "nn/c.hpp"\n',
                 "nn__c_hpp": '#include "nn/a.hpp"\n', "nn__user_cpp": '#include "nn/a.hpp"\n'}
        status, output = self.check(**files)
        self.assertEqual(status, 1)
        self.assertIn("src/nn/a: includes itself: nn/a -> nn/b -> nn/c -> nn/a;", output)
        self.assertEqual(self.check(**{**files, "nn__c_hpp": ""})[0], 0)

    def test_classes_are_small(self):
        parts = ["  A();\n  A(const A&) = delete;\n", " public:\n  using B = int;\n  friend class C;\n",
                 "  struct Inner {\n    int counted_by_itself = 0;\n  };\n", "  enum class Kind { kOne, kTwo };\n",
                 "  // void comment();\n", '  const char* text() const { return "}"; }\n', "  void run(int a, int b = 2);\n",
                 "  std::map<int, std::string> map_{{1, \"a\"}, {2, \"b\"}};\n", "  template <class T>\n  T as() const;\n",
                 "  int first_ = 0, second_ = f(1);\n", "  bool operator()() const { if (x) { return 1; } return 0; }\n"]

        def of(members):
            fields = "".join(f"  int field_{index}_ = 0;\n" for index in range(members - 8))
            return f"class Forward;\nclass A final : public Base<int> {{\n{''.join(parts)}{fields}}};\n"
        self.assertEqual(self.check(nn__a_hpp=of(30))[0], 0)
        status, output = self.check(nn__a_hpp=of(31))
        self.assertEqual(status, 1)
        self.assertIn("src/nn/a.hpp: A has 31 members; expected at most 30", output)

    def test_comments_have_a_subject(self):
        good = "// Asks for whatever is left.\n// Of_a is a name.\nint a;  // of b\nint b = 2 * That;\n"
        bad = ["// What is left.", "int a;  // Of b", "/** The same, later. */", "/*\n * As before. */", "  // Those that end."]
        self.assertEqual(self.check(nn__a_hpp=good)[0], 0)
        status, output = self.check(nn__a_hpp="\n".join(bad) + "\n")
        self.assertEqual(status, 1)
        for line, word in ((1, "What"), (2, "Of"), (3, "The same"), (5, "As"), (6, "Those")):
            self.assertIn(f"src/nn/a.hpp:{line}: the comment begins with '{word}'; expected its subject\n", output)

    def test_what_is_found(self):
        heavy = "#include <torch/csrc/autograd/autograd.h>\n"
        for content, file, expected in (
            ('#include "nn/a.hpp"', "base__b_cpp", "may include layers below it only"),
            ('#include "data/a.hpp"', "optim__b_cpp", "may include layers below it only"),
            ('#include "comm/ucx/progress/a.hpp"', "comm__ucx__algorithms__b_cpp", "may include folders below it only"),
            ('#include "comm/ucx/a.hpp"', "comm__ucx__host__b_cpp", "may include folders below it only"),
            ('#include "nn/gone.hpp"', "data__b_cpp", "does not exist"),
            ('#include "accel.h"', "nn__b_cpp", "only capi/ may"),
            ("#include <ATen/ATen.h>", "nn__b_cpp", "ATen/core/Tensor.h"),
            ("#include <torch/script.h>", "nn__b_cpp", "which costs seconds"),
            ('#include "nn/heavy.hpp"', "nn__b_cpp", "through nn/heavy.hpp"),
            ("using namespace accel;", "nn__b_cpp", "expected its code inside of that namespace"),
            ("#include <c10/util/Exception.h>", "base__b_cpp", "does without LibTorch"),
            ("", "nn__utils_cpp", "does not say what is in the file"),
            ("", "nn__string_helpers_cpp", "does not say what is in the file"),
            ("//" + "x" * 41000, "nn__b_cpp", "cut it by concept"),
            ("", "stray__b_cpp", "has no layer"),
            ('setenv("UCX_TLS", "tcp", 0);', "comm__b_cpp", "changes the environment"),
            ("#if TORCH_VERSION_MINOR >= 12", "comm__b_cpp", "expected a name that src/base/torch_compat.hpp defines"),
            ("environ = mine;", "comm__b_cpp", "changes the environment"),
            ("const EnvironmentDefaults defaults(variables);", "parallel__b_cpp", "puts variables into the environment"),
        ):
            with self.subTest(expected=expected, file=file), tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                status, output = self.check(nn__a_hpp="", data__a_hpp="", comm__ucx__a_hpp="", nn__heavy_hpp=heavy,
                                            **{"comm__ucx__progress__a_hpp": "", file: content + "\n"})
                self.assertEqual(status, 1)
                self.assertIn(expected, output)


class DefinedTests(unittest.TestCase):
    C = "static void unused(void);\nstatic void works(void **state,\n  int a) {\n  call();\n}\n"

    def test_tests_of_each_language(self):
        for name, text, suffix, expected in (
            ("A.Works", "TEST_F(A, Works) {\n}\n", ".cpp", True),
            ("A.Worked", "// TEST(A, Worked)\n", ".cpp", False),
            ("works", self.C, ".c", True),
            ("call", self.C, ".c", False),
            ("unused", self.C, ".c", False),
            ("test_works", "class Tests:\n    def test_works(self):\n        pass\n", ".py", True),
            ("works", "class Tests:\n    def test_works(self):\n        pass\n", ".py", False),
            ("a set", '@testset "a set" begin\n', ".jl", True),
        ):
            with self.subTest(name=name, suffix=suffix):
                self.assertEqual(defined_tests.is_defined(name, text, suffix), expected)


@unittest.skipIf(shutil.which("git") is None, "there is no git")
class CommitSubjects(ToolTest):
    def commit(self, *subjects):
        for subject in subjects:
            self.git("-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "--allow-empty", "-m", subject)

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.folder, *arguments], check=True, capture_output=True)

    def check(self):
        result = run(CHECKS / "commit_subjects_test.py", self.folder)
        return result.returncode, result.stdout

    def test_skipped_without_a_repository_of_its_own(self):
        self.assertEqual(self.check(), (77, "skipped: the sources are not the folder of a git repository\n"))
        self.git("init", "-q")
        self.assertEqual(self.check(), (77, "skipped: the repository has no commits\n"))
        inner = self.folder / "inner"
        inner.mkdir()
        self.commit("wrong.")
        self.folder = inner
        self.assertEqual(self.check()[0], 77)

    def test_as_many_as_there_are(self):
        self.git("init", "-q")
        self.commit("Add a thing", "L" * 72)
        self.assertEqual(self.check(), (0, "the subjects of the last 2 commits hold the rules\n"))

    def test_what_is_found(self):
        self.git("init", "-q")
        self.commit("too old.", *["Add a thing"] * 46, "Add one.", "add another", "L" * 73, "Ändere etwas")
        status, output = self.check()
        self.assertEqual(status, 1)
        for subject, expected in (("Add one.", "ends with a period"), ("add another", "begins with 'a', expected a capital letter"),
                                  ("L" * 73, "has 73 letters, expected at most 72")):
            self.assertIn(f"'{subject}' {expected}\n", output)
        self.assertEqual(output.count("\n"), 3)


if __name__ == "__main__":
    unittest.main()
