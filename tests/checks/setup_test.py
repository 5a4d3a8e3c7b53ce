#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts that install, build and start, on a system made of fake commands: full disks, no network, interruptions."""

import fcntl
import hashlib
import json
import os
import pathlib
import re
import platform
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
SCRIPTS = ("setup.sh", "quickstart.sh", "build.sh", "run_ninja.py", "changed_options.py", "fetch_libtorch.py", "find_libtorch.py")
LIBTORCH = {
    "torch/include/ATen/core/Tensor.h": "", "torch/lib/libtorch_cpu.so": "x" * 20000, "torch/lib/libc10.so": "",
    "torch/include/torch/headeronly/version.h":
        "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 13\n#define TORCH_VERSION_PATCH 0\n"}
WHEEL = f"torch-2.13.0-cp311-cp311-manylinux_2_28_{platform.machine()}.whl"


class SystemTest(unittest.TestCase):
    """A clone in a path with blanks, and a folder of commands that come before those of the system."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, "a b", "c d")
        self.clone = self.folder / "clone"
        self.commands = self.folder / "commands"
        self.commands.mkdir(parents=True)
        (self.clone / "tools").mkdir(parents=True)
        for script in SCRIPTS:
            shutil.copy(TOOLS / script, self.clone / "tools")
        self.uplot = self.clone / "subprojects/uplot-1.6.32"
        self.uplot.mkdir(parents=True)
        (self.uplot / "meson.build").touch()
        shutil.copy(TOOLS.parent / "subprojects/uplot.wrap", self.uplot.parent)
        self.home = self.folder / "home"
        self.cache = self.home / ".cache" / "libaccel"
        self.environment = {**os.environ, "PATH": f"{self.commands}:{os.environ['PATH']}", "HOME": str(self.home),
                            "STATE": str(self.folder), "LC_ALL": "C.UTF-8"}
        for name in ("LIBTORCH", "XDG_CACHE_HOME", "CC", "CXX", "PIP_DEFAULT_TIMEOUT"):
            self.environment.pop(name, None)

    def command(self, name, text, shell="/bin/sh"):
        file = self.commands / name
        file.write_text(f"#!{shell}\n{text}\n")
        file.chmod(0o755)

    def start(self, script, *arguments, **options):
        command = [self.clone / "tools" / script, *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                env=self.environment, cwd="/", start_new_session=True, **options)

    def run_script(self, script, *arguments, **options):
        process = self.start(script, *arguments, **options)
        out, error = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, error)

    def assert_stopped(self, result, *words):
        """With one line that says why."""
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def wait_for(self, condition):
        for _ in range(400):
            if condition():
                return
            time.sleep(0.05)
        self.fail("what was waited for did not happen")

    def make_wheel(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / WHEEL, "w") as archive:
            for name, text in LIBTORCH.items():
                archive.writestr(zipfile.ZipInfo(name), text)
        digest = hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()
        (self.clone / "tools/libtorch.txt").write_text(f"# size torch 20000\ntorch==2.13.0 --hash=sha256:{digest}\n")
        return folder / WHEEL


class Fetch(SystemTest):
    """tools/fetch_libtorch.py with a pip that takes its wheel from a folder."""

    PIP = """import os, pathlib, shutil, sys, time
state = pathlib.Path(os.environ["STATE"])
with open(state / "pip.log", "a") as log:
    log.write("called\\n")
said = state / "pip_says"
if said.exists():
    sys.exit(said.read_text())
folder = [word[7:] for word in sys.argv if word.startswith("--dest=")][0]
pathlib.Path(os.environ["TMPDIR"], "unfinished").write_text("x" * 1000)
while (state / "pip_waits").exists():
    time.sleep(0.02)
wheel = next((state / "index").glob("*.whl"))
shutil.copyfile(wheel, os.path.join(folder, wheel.name))  # a file of its own, which has the mode that the umask gives
"""

    def setUp(self):
        super().setUp()
        self.command("pip", self.PIP, sys.executable)
        self.make_wheel(self.folder / "index")

    def fetch(self, *before, pip=True, **options):
        """With statements of Python that are run before."""
        program = (f"import runpy, sys, time; sys.argv = ['fetch_libtorch.py', {str(self.clone)!r}, *{['pip'] * pip}]; "
                   f"sys.path.insert(0, {str(self.clone / 'tools')!r}); "
                   "wait = time.sleep; time.sleep = lambda seconds: wait(min(seconds, 0.05)); " + "".join(f"{statement}; " for statement in before) +
                   f"runpy.run_path({str(self.clone / 'tools/fetch_libtorch.py')!r}, run_name='__main__')")
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment, start_new_session=True, **options)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def finish(self, process):
        out, error = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, error)

    def assert_complete(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue((self.clone / "build/deps/torch/lib/libtorch_cpu.so").exists())
        self.assertEqual(sorted(file.name for file in (self.clone / "build/deps").iterdir()), ["libtorch.txt", "torch"])
        self.assertEqual(sorted(file.name for file in self.cache.iterdir()), ["lock", WHEEL])

    def assert_nothing_half(self):
        deps = self.clone / "build/deps"
        self.assertEqual([file.name for file in deps.iterdir()], [])
        self.assertFalse((self.cache / "partial").exists())

    def test_downloads_and_extracts(self):
        self.assert_complete(self.finish(self.fetch()))

    def test_without_pip_it_says_that_a_wheel_is_missing(self):
        self.assertEqual(self.finish(self.fetch(pip=False)).returncode, 3)
        self.finish(self.fetch())
        shutil.rmtree(self.clone / "build")
        self.assert_complete(self.finish(self.fetch(pip=False)))

    def test_a_full_disk_before_the_download(self):
        no_room = "import shutil, types; shutil.disk_usage = lambda folder: types.SimpleNamespace(free=30000)"
        self.assert_stopped(self.finish(self.fetch(no_room)), "disk is full", "1 MB", str(self.cache))
        self.assertFalse((self.folder / "pip.log").exists())
        self.assert_nothing_half()
        self.assert_complete(self.finish(self.fetch()))

    def test_a_full_disk_in_the_middle_of_the_download(self):
        (self.folder / "pip_says").write_text("ERROR: Could not install: [Errno 28] No space left on device")
        self.assert_stopped(self.finish(self.fetch()), "disk is full", "MB are free", str(self.cache))
        self.assertEqual((self.folder / "pip.log").read_text(), "called\n")
        self.assert_nothing_half()
        (self.folder / "pip_says").unlink()
        self.assert_complete(self.finish(self.fetch()))

    def test_a_full_disk_in_the_middle_of_the_extraction(self):
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))"
        self.finish(self.fetch())
        shutil.rmtree(self.clone / "build")
        self.assert_stopped(self.finish(self.fetch(limit)), "disk is full", "the extraction needs 1 MB", str(self.clone))
        self.assert_nothing_half()
        self.assert_complete(self.finish(self.fetch()))

    def test_no_network(self):
        (self.folder / "pip_says").write_text("WARNING: Retrying after connection broken by 'NewConnectionError(...)'\nERROR: none")
        self.assert_stopped(self.finish(self.fetch()), "torch==2.13.0", "network is not reachable", "$LIBTORCH")
        self.assertEqual((self.folder / "pip.log").read_text(), "called\n")
        self.assert_nothing_half()

    def test_a_network_that_breaks_is_tried_again(self):
        (self.folder / "pip_says").write_text("ERROR: Connection reset by peer")
        self.assert_stopped(self.finish(self.fetch()), "torch==2.13.0 cannot be downloaded", "reset by peer")
        self.assertEqual((self.folder / "pip.log").read_text().count("called"), 4)

    def test_interrupted(self):
        waits = self.folder / "pip_waits"
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number=number):
                waits.touch()
                process = self.fetch()
                self.wait_for((self.cache / "partial/unfinished").exists)
                process.send_signal(number)
                result = self.finish(process)
                self.assertEqual(result.returncode, status, result.stderr)
                self.assertNotIn("Traceback", result.stderr)
                self.assert_nothing_half()
                waits.unlink()
        self.assert_complete(self.finish(self.fetch()))

    def test_what_pip_downloads_after_a_kill_is_taken(self):
        waits = self.folder / "pip_waits"
        waits.touch()
        process = self.fetch()
        self.wait_for((self.cache / "partial/unfinished").exists)
        process.kill()
        process.wait()
        following = self.fetch()
        self.assertIn("waiting", following.stdout.readline())
        waits.unlink()
        self.assert_complete(self.finish(following))
        self.assertEqual((self.folder / "pip.log").read_text(), "called\n")

    def test_any_umask(self):
        for umask in (0o077, 0o000):
            with self.subTest(umask=oct(umask)):
                self.assert_complete(self.finish(self.fetch(preexec_fn=lambda: os.umask(umask))))
                for root in (self.clone / "build", self.cache):
                    for file in (root, *root.rglob("*")):
                        self.assertEqual(file.stat().st_mode & 0o777, 0o755 if file.is_dir() else 0o644, file)
                shutil.rmtree(self.clone / "build")
                shutil.rmtree(self.home)

    def test_the_folder_of_the_cache(self):
        self.environment["XDG_CACHE_HOME"] = str(self.folder / "x y")
        self.cache = self.folder / "x y" / "libaccel"
        self.assert_complete(self.finish(self.fetch()))
        shutil.rmtree(self.clone / "build")
        self.environment["XDG_CACHE_HOME"] = "relative"  # is to be ignored
        self.cache = self.home / ".cache" / "libaccel"
        self.assert_complete(self.finish(self.fetch()))
        shutil.rmtree(self.clone / "build")
        del self.environment["XDG_CACHE_HOME"], self.environment["HOME"]
        nowhere = "import pathlib, os.path; os.path.expanduser = lambda path: path"
        result = self.finish(self.fetch(nowhere))
        self.assert_stopped(result, "XDG_CACHE_HOME")


class SetUp(SystemTest):
    """tools/setup.sh where apt-get installs by writing down the name of the package."""

    def setUp(self):
        super().setUp()
        self.make_wheel(self.cache)
        for name in ("cc", "c++", "ninja", "ccache", "swig"):
            self.command(name, "exit 0")
        self.command("meson", "echo 1.3.0")
        self.command("sudo", '[ "$1" != -n ] || shift; exec "$@"')
        self.command("dpkg", 'echo "dpkg $*" >>"$STATE/apt.log"; rm -f "$STATE/interrupted"')
        self.command("pkg-config", '[ "$2" != ucx ] || [ -e "$STATE/installed" ]')
        self.command("apt-get", """case $* in *--print-uris*) echo "'http://mirror/a.deb' a.deb 12000000 MD5Sum:x"; exit ;; esac\n"""
                     'echo "$*" >>"$STATE/apt.log"; [ ! -e "$STATE/apt_says" ] || { cat "$STATE/apt_says" >&2; exit 100; }\n'
                     '[ ! -e "$STATE/interrupted" ] || { echo "E: dpkg was interrupted" >&2; exit 100; }\n'
                     'case $* in *install*libucx-dev*) touch "$STATE/installed" ;; esac')

    def apt_calls(self):
        log = self.folder / "apt.log"
        return log.read_text().splitlines() if log.exists() else []

    def assert_ready(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout.splitlines()[-1], f"set-up: LibTorch 2.13.0 in {self.clone}/build/deps/torch")

    def test_installs_what_is_missing_and_then_nothing(self):
        result = self.run_script("setup.sh")
        self.assert_ready(result)
        self.assertEqual(result.stdout.splitlines()[0], "set-up: installing libucx-dev")
        self.assertEqual(len(self.apt_calls()), 1)
        self.command("apt-get", "exit 100")  # nothing asks for it, nor for the wheel
        shutil.rmtree(self.home)
        again = self.run_script("setup.sh")
        self.assert_ready(again)
        self.assertEqual(again.stdout.count("\n"), 1)

    def test_ccache_is_a_wish(self):
        (self.folder / "installed").touch()
        (self.folder / "apt_says").write_text("Temporary failure resolving 'mirror'\n")
        self.environment["PATH"] = f"{self.commands}:{self.bare_path()}"
        (self.commands / "ccache").unlink()
        result = self.run_script("setup.sh")
        self.assert_ready(result)
        self.assertEqual(result.stdout.splitlines()[:2], ["set-up: installing ccache", "set-up: going on without ccache"])

    def bare_path(self):
        """A folder with what the folders of PATH have, except ccache."""
        folder = self.folder / "bare"
        folder.mkdir()
        for path in reversed(os.environ["PATH"].split(":")):
            for file in pathlib.Path(path).glob("*") if path else ():
                if file.name != "ccache":
                    link = folder / file.name
                    link.unlink(missing_ok=True)
                    link.symlink_to(file)
        return folder

    def test_an_installed_libtorch(self):
        (self.folder / "installed").touch()
        for name, text in LIBTORCH.items():
            file = self.folder / "own" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        shutil.rmtree(self.home)
        self.environment["LIBTORCH"] = str(self.folder / "own/torch")
        result = self.run_script("setup.sh")
        self.assertEqual(result.stdout, f"set-up: LibTorch 2.13.0 in {self.folder}/own/torch\n", result.stderr)

    def test_lean_needs_no_packages_of_tests(self):
        (self.folder / "installed").touch()
        self.command("pkg-config", '[ "$2" != gtest ]')
        self.assert_ready(self.run_script("setup.sh", "--lean"))
        self.assertEqual(self.apt_calls(), [])
        self.assert_stopped(self.run_script("setup.sh"), "libgtest-dev")

    def test_no_network(self):
        (self.folder / "apt_says").write_text("Err:1 http://mirror Temporary failure resolving 'mirror'\nE: Unable to fetch\n")
        self.assert_stopped(self.run_script("setup.sh"), "missing: libucx-dev", "network is not reachable")
        (self.folder / "apt_says").unlink()
        self.assert_ready(self.run_script("setup.sh"))

    def test_a_full_disk(self):
        (self.folder / "apt_says").write_text("Need to get 12.5 MB of archives.\nE: You don't have enough free space in /var/cache.\n")
        self.assert_stopped(self.run_script("setup.sh"), "libucx-dev", "disk is full", "12.5 MB to download", "MB are free")

    def test_an_interrupted_installation(self):
        (self.folder / "interrupted").touch()
        self.assert_ready(self.run_script("setup.sh"))
        self.assertIn("dpkg --configure -a", self.apt_calls())

    def test_another_umask(self):
        self.assert_ready(self.run_script("setup.sh", preexec_fn=lambda: os.umask(0o077)))
        self.assertEqual((self.clone / "build/deps").stat().st_mode & 0o777, 0o755)

    def test_a_libtorch_that_was_damaged_is_extracted_again(self):
        self.assert_ready(self.run_script("setup.sh"))
        (self.clone / "build/deps/torch/lib/libtorch_cpu.so").unlink()
        self.assert_ready(self.run_script("setup.sh"))

    def test_two_at_a_time(self):
        (self.clone / "build/deps").mkdir(parents=True)
        with open(self.clone / "build/deps/.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = self.start("setup.sh")
            self.assertIn("waiting", process.stdout.readline())
        out, error = process.communicate(timeout=60)
        self.assertEqual((process.returncode, error), (0, ""), out)

    def test_check_says_and_does_nothing(self):
        shutil.rmtree(self.home)
        before = sorted(self.clone.rglob("*"))
        result = self.run_script("setup.sh", "--check")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("Debian packages that are missing, 13 MB to download: libucx-dev", result.stdout)
        self.assertRegex(result.stdout, r"LibTorch: \d+ MB to download into .*/libaccel")
        self.assertEqual(sorted(self.clone.rglob("*")), before)
        self.assertFalse((self.folder / "installed").exists())
        self.assert_ready_after_a_wheel()
        self.assertEqual(self.run_script("setup.sh", "--check").stdout, "set-up: nothing is missing\n")

    def assert_ready_after_a_wheel(self):
        self.make_wheel(self.cache)
        self.assert_ready(self.run_script("setup.sh"))

    def test_without_root_nothing_calls_sudo(self):
        self.command("id", "echo 1000")
        self.command("sudo", 'touch "$STATE/sudo_was_called"; exit 1')
        result = self.run_script("setup.sh")
        self.assert_stopped(result, "missing: libucx-dev", "run as root: apt-get install libucx-dev", "--sudo")
        self.assertIn("root is needed for: libucx-dev", self.run_script("setup.sh", "--check").stdout)
        self.assertFalse((self.folder / "sudo_was_called").exists())
        (self.folder / "installed").touch()
        self.command("pkg-config", '[ "$2" != libcjson ]')  # what a wrap has
        result = self.run_script("setup.sh")
        self.assert_ready(result)
        self.assertIn("without root", result.stdout)
        self.assertFalse((self.folder / "sudo_was_called").exists())

    def test_another_libtorch_beside_the_default(self):
        (self.folder / "installed").touch()
        self.assert_ready(self.run_script("setup.sh"))
        pins = self.clone / "tools/libtorch.txt"
        (self.clone / "tools/libtorch-2.13.0.txt").write_text(pins.read_text().replace(" --hash", " \\\n    --hash"))
        pins.write_text("torch==2.99.0 \\\n    --hash=sha256:0\n")
        deps = self.clone / "build/deps"
        self.environment["LIBTORCH"] = str(self.folder / "nothing")  # is for the default
        check = self.run_script("setup.sh", "--check", "--libtorch", "2.13.0")
        self.assertIn("490 MB are unpacked into build/deps/libtorch-2.13.0", check.stdout)
        for _ in range(2):
            result = self.run_script("setup.sh", "--libtorch", "2.13.0")
            self.assertEqual(result.stdout, f"set-up: LibTorch 2.13.0 in {deps}/libtorch-2.13.0/torch\n", result.stderr)
            shutil.rmtree(self.home, ignore_errors=True)  # the second time nothing is read
        self.assertIn("\ntorch==2.13.0 ", (deps / "libtorch.txt").read_text())

    def test_an_unknown_libtorch(self):
        (self.clone / "tools/libtorch.txt").write_text("torch==2.13.0 \\\n    --hash=sha256:0\n")
        for arguments in (["--libtorch", "2.10.0"], ["--libtorch", "2.13"], ["--libtorch"]):
            self.assert_stopped(self.run_script("setup.sh", *arguments), "--libtorch", "expected one of 2.13.0")

    # Regression: a Meson that asks `distutils` found no Python 3.12, and said that it is not valid.
    def test_a_meson_that_does_not_know_the_python_is_replaced(self):
        (self.folder / "installed").touch()
        self.command("meson", "echo 1.0.1")
        self.command("python3", f"""case $* in *version_info*) exit $(cat "$STATE/is_old") ;; esac; exec {sys.executable} "$@\"""")
        (self.folder / "is_old").write_text("1")
        self.assert_ready(self.run_script("setup.sh"))
        self.assertFalse((self.clone / "build/deps/bin/meson").exists())
        own = self.clone / "build/deps/python/bin/python"
        own.parent.mkdir(parents=True)
        own.write_text("#!/bin/sh\ncase $* in *install*) printf '#!/bin/sh\necho 1.12.1\n' >\"$0.meson\"; chmod +x \"$0.meson\"; "
                       "mv \"$0.meson\" \"${0%/*}/meson\"; echo \"$*\" >>\"$STATE/pip.log\" ;; esac\n")
        own.chmod(0o755)
        (self.folder / "is_old").write_text("0")
        for _ in range(2):
            self.assert_ready(self.run_script("setup.sh"))
        self.assertEqual((self.folder / "pip.log").read_text().count("meson>=1.3,<2"), 1)

    def test_uplot_is_downloaded_once_for_all_clones(self):
        (self.folder / "installed").touch()
        shutil.rmtree(self.uplot)
        self.assertIn("uPlot: 0.2 MB to download", self.run_script("setup.sh", "--check").stdout)
        self.command("meson", """[ "$1" = subprojects ] || { echo 1.3.0; exit; }
archive=subprojects/packagecache/uplot-1.6.32.tgz
[ -f $archive ] || [ ! -e "$STATE/offline" ] || { echo "urlopen error: Temporary failure in name resolution"; exit 1; }
echo "$*" >>"$STATE/meson.log"
touch $archive && mkdir -p subprojects/uplot-1.6.32 && touch subprojects/uplot-1.6.32/meson.build""")
        (self.folder / "offline").touch()
        self.assert_stopped(self.run_script("setup.sh"), "Meson cannot download uPlot: the network is not reachable")
        (self.folder / "offline").unlink()
        for _ in range(2):
            self.assert_ready(self.run_script("setup.sh"))
        self.assertEqual((self.folder / "meson.log").read_text(), "subprojects download uplot\n")
        shutil.rmtree(self.uplot.parent / "packagecache")  # as a new clone has none
        shutil.rmtree(self.uplot)
        (self.folder / "offline").touch()
        self.assert_ready(self.run_script("setup.sh"))
        self.assertTrue((self.uplot / "meson.build").exists())

    def test_an_unknown_option(self):
        self.assert_stopped(self.run_script("setup.sh", "--all"), "--all", "--develop")


class Build(SystemTest):
    """tools/build.sh with a Meson that writes a build of three files."""

    MESON = """echo "$*" >>"$STATE/meson.log"
for folder do :; done
case $* in *broken*) echo "ERROR: no such option"; exit 1 ;; esac
mkdir -p "$folder/meson-private" "$folder/meson-info"
echo '[{"name": "tests", "value": false}]' >"$folder/meson-info/intro-buildoptions.json"
cp "$STATE/build.ninja" "$folder/build.ninja.new"; mv "$folder/build.ninja.new" "$folder/build.ninja"
"""
    NINJA = """rule compile
  command = echo $$$$ >>pids; $action && touch $out
build build.ninja: phony
"""

    def setUp(self):
        super().setUp()
        self.command("meson", self.MESON)
        self.build = self.clone / "build/release"
        self.describe(["true"] * 3)

    def describe(self, actions):
        steps = "".join(f"build file{i}.o: compile\n  action = {action}\n" for i, action in enumerate(actions))
        (self.folder / "build.ninja").write_text(self.NINJA + steps)

    def cost(self):
        return json.loads((self.build / "build_cost.json").read_text())

    def meson_calls(self):
        return (self.folder / "meson.log").read_text().splitlines()

    def test_says_what_it_cost_and_keeps_it(self):
        self.describe(["true", "sleep 0.5", "true"])
        result = self.run_script("build.sh")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertRegex(result.stdout, r"build: 3 files compiled in .* the largest 0\.\d s \(file1\.o\)")
        cost = self.cost()
        self.assertEqual((cost["files"], cost["largest_file"]), (3, "file1.o"))
        self.assertEqual(set(cost), {"files", "mean_s", "largest_s", "largest_file", "processor_s", "wall_s", "peak_mb"})
        self.assertGreater(cost["largest_s"], 0.45)
        again = self.run_script("build.sh")
        self.assertEqual(again.stdout, "build: nothing to compile in build/release\n")
        self.assertEqual(self.cost(), cost)

    def test_shows_errors_whole_and_keeps_the_status(self):
        self.describe(["true", "echo first line >&2; echo second line >&2; exit 3", "true"])
        result = self.run_script("build.sh")
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED", result.stdout)
        self.assertIn("first line\nsecond line\n", result.stdout)
        self.assertFalse((self.build / "build_cost.json").exists())

    def test_options_count_for_folders_that_are_new(self):
        self.run_script("build.sh", "--lean", "-Dlibtorch=/x y/torch", "file0.o")
        self.run_script("build.sh", "--lean", "file1.o")
        self.assertEqual(self.meson_calls(), [
            "setup -Dtests=false -Dbench=false -Dunity=on -Dunity_size=40 -Dlibtorch=/x y/torch build/release"])
        self.assertTrue((self.build / "file1.o").exists())
        self.assertFalse((self.build / "file2.o").exists())

    def test_options_that_change_nothing(self):
        self.run_script("build.sh")
        self.run_script("build.sh", "-Dtests=false")
        self.assertEqual(len(self.meson_calls()), 1)
        self.run_script("build.sh", "-Dtests=true")
        self.assertEqual(self.meson_calls()[1:], ["configure -Dtests=true build/release"])

    # Regression: a build compiled one source at a time where `OMP_NUM_THREADS` was 1, for `nproc` counts what the variable says.
    def test_threads_of_programs_are_not_those_of_the_build(self):
        self.environment["OMP_NUM_THREADS"] = "1"
        self.describe([f"tr '\\0' ' ' </proc/$$PPID/cmdline >ninja.log"])
        self.run_script("build.sh")
        jobs = re.search(r" -j (\d+) ", (self.build / "ninja.log").read_text())
        self.assertEqual(int(jobs.group(1)), len(os.sched_getaffinity(0)))

    def test_another_folder(self):
        result = self.run_script("build.sh", "-C", self.folder / "e f")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue((self.folder / "e f/file2.o").exists())
        self.assert_stopped(self.run_script("build.sh", "-C"), "-C", "expected a folder")

    def test_meson_fails(self):
        result = self.run_script("build.sh", "-Dbroken=1")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr.splitlines()[0], "ERROR: no such option")
        self.assertIn("setup.log", result.stderr.splitlines()[1])

    def test_a_configuration_that_was_interrupted(self):
        (self.build / "meson-private").mkdir(parents=True)
        (self.build / "meson-private/coredata.dat").touch()
        self.assertEqual(self.run_script("build.sh").returncode, 0)
        self.assertFalse((self.build / "meson-private/coredata.dat").exists())

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                self.describe(["true", "sleep 60", "true"])
                shutil.rmtree(self.build, ignore_errors=True)
                process = self.start("build.sh")
                self.wait_for(lambda: (self.build / "pids").exists() and (self.build / "file0.o").exists())
                time.sleep(0.3)
                process.send_signal(number)
                out, error = process.communicate(timeout=20)
                self.assertEqual(process.returncode, 128 + number, out + error)
                self.assertIn("the next run continues", error)
                for pid in (self.build / "pids").read_text().split():
                    self.assertFalse(pathlib.Path("/proc", pid).exists())
                self.describe(["true", "true", "true"])
                shutil.copy(self.folder / "build.ninja", self.build / "build.ninja")
                result = self.run_script("build.sh")
                self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_a_second_build_waits(self):
        self.build.mkdir(parents=True)
        with open(self.build / ".build_lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = self.start("build.sh")
            self.assertIn("waiting", process.stdout.readline())
        out, error = process.communicate(timeout=60)
        self.assertEqual((process.returncode, error), (0, ""), out)

    def test_a_terminal_shows_how_far_it_is(self):
        self.describe(["true", "sleep 0.6", "sleep 0.6"])
        main, terminal = pty.openpty()
        process = subprocess.Popen([self.clone / "tools/build.sh"], stdout=terminal, env=self.environment)
        os.close(terminal)
        text = b""
        try:
            while block := os.read(main, 4096):
                text += block
        except OSError:  # its other end is closed
            pass
        os.close(main)
        self.assertEqual(process.wait(), 0)
        self.assertRegex(text.decode(), r"build: [12] of 3 files, \d s\r\x1b\[K")

    def test_a_log_gets_a_line_now_and_then(self):
        tool = self.clone / "tools/run_ninja.py"
        tool.write_text(tool.read_text().replace("INTERVAL = 10.0", "INTERVAL = 0.3"))
        self.describe(["sleep 1", "true", "true"])
        self.assertRegex(self.run_script("build.sh").stdout, r"(?m)^build: \d of 3 files, \d s$")


class QuickStart(SystemTest):
    def setUp(self):
        super().setUp()
        for script in ("setup.sh", "build.sh"):
            (self.clone / "tools" / script).write_text(f'#!/bin/sh\necho "{script} $*" >>"$STATE/log"\n')
        accel = self.clone / "build/release/src/cli/accel"
        accel.parent.mkdir(parents=True)
        accel.write_text('#!/bin/sh\n[ "$1" = env ] && cat "$STATE/env" || echo "accel $*" >>"$STATE/log"\n')
        accel.chmod(0o755)

    def test_takes_the_precision_that_the_processor_is_fast_in(self):
        for line, precision, said in (
            ("processor bf16              avx512_bf16", "bf16", "precision: bf16, this processor has avx512_bf16"),
            ("processor bf16              avx512_bf16, amx_bf16", "bf16", "precision: bf16, this processor has avx512_bf16, amx_bf16"),
            ("processor bf16              none, bf16 is emulated in float32", "no", "precision: fp32, this processor has no bf16 instructions"),
            ("", "no", "precision: fp32, this processor has no bf16 instructions"),
        ):
            with self.subTest(line=line):
                (self.folder / "env").write_text(f"accel 0.1.0\n{line}\n")
                result = self.run_script("quickstart.sh", "--text", "x y")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertIn("quick start: builds into build/", result.stdout.splitlines()[0])
                self.assertEqual(result.stdout.splitlines()[1], said)
                self.assertIn(f"--mixed-precision {precision} --", (self.folder / "log").read_text().splitlines()[-1])

    def test_says_what_it_would_do(self):
        result = self.run_script("quickstart.sh", "--check")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual((self.folder / "log").read_text(), "setup.sh --check --lean\n")


if __name__ == "__main__":
    unittest.main()
