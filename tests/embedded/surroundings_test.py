#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs in poor surroundings: no home, folders that cannot be written, no /dev/shm, blanks in paths, an old processor.

usage: surroundings_test.py LAUNCHER EXAMPLES LIBRARY PLUGIN [unittest argument ...]

EXAMPLES is the folder of the examples in C, LIBRARY is libaccel.so, PLUGIN libaccel_ucx.so. What needs a mount name space or an emulator is
skipped without them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LAUNCHER, EXAMPLES, LIBRARY, PLUGIN = map(pathlib.Path, sys.argv[1:5])
SECONDS = 100
NOWHERE = "/proc/accel"  # nobody, not even root, can make this folder
EMULATOR = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
OLD = "Nehalem"  # SSE 4.2, no AVX


def run(*command, without=(), **variables):
    kept = {name: value for name, value in os.environ.items() if name not in without}
    done = subprocess.run(list(map(str, command)), env={**kept, "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1", **variables},
                          capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0 or done.stderr != "":
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def launch(*command, **more):
    return run(LAUNCHER, "launch", "--num-processes", 2, "--", *command, **more)


def has_mounts():
    try:
        return subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def is_x86_64():
    return os.uname().machine == "x86_64"


class Folders(unittest.TestCase):
    """What the library would keep, it does without."""

    def assert_trains(self, **surroundings):
        alone = run(EXAMPLES / "train", **surroundings)
        self.assertRegex(alone, r"\naccuracy: 0\.\d+\n$")
        self.assertRegex(launch(EXAMPLES / "train", **surroundings), r"\naccuracy: 0\.\d+\n$")

    def test_no_home(self):
        self.assert_trains(without=("HOME", "XDG_CACHE_HOME", "TMPDIR", "XDG_RUNTIME_DIR", "USER"))

    def test_folders_that_cannot_be_written(self):
        self.assert_trains(HOME=NOWHERE, XDG_CACHE_HOME=NOWHERE, TMPDIR=NOWHERE)

    @unittest.skipUnless(has_mounts(), "no mount name space can be made here")
    def test_no_dev_shm(self):
        script = ('mount -t tmpfs none /mnt; mkdir /mnt/dev; for device in null zero urandom random full; do touch /mnt/dev/$device; '
                  'mount --bind /dev/$device /mnt/dev/$device; done; mount --rbind /mnt/dev /dev; test ! -e /dev/shm; exec "$@"')
        without_shm = ["unshare", "--mount", "sh", "-ec", script, "sh"]
        self.assertEqual(run(*without_shm, EXAMPLES / "hello"), "[0]\n")
        for own in "1", "0":
            with self.subTest(ACCEL_SHARED_MEMORY=own):
                self.assertEqual(run(*without_shm, LAUNCHER, "launch", "--num-processes", 2, "--", EXAMPLES / "hello",
                                     ACCEL_SHARED_MEMORY=own), "[0,1]\n")

    def test_blanks_in_the_path_of_library_plugin_and_program(self):
        with tempfile.TemporaryDirectory(prefix="accel with blanks ") as folder:
            here = pathlib.Path(folder) / "a game"
            (here / "accel").mkdir(parents=True)
            shutil.copy(LIBRARY, here / "libaccel.so.0.1")
            shutil.copy(PLUGIN, here / "accel" / "libaccel_ucx.so")
            shutil.copy(EXAMPLES / "hello", here / "my program")
            log = here / "its log"
            output = launch(here / "my program", without=("ACCEL_PLUGIN_PATH",), LD_LIBRARY_PATH=str(here), ACCEL_LOG=f"info:{log}")
            self.assertEqual(output, "[0,1]\n")
            self.assertIn(f"the plugin {here}/accel/libaccel_ucx.so is loaded", log.read_text())
            self.assertIn(f" is {here}/libaccel.so.0.1, LibTorch ", log.read_text())


@unittest.skipUnless(is_x86_64() and EMULATOR, "qemu-x86_64 (Debian: qemu-user) is not there")
class OldProcessor(unittest.TestCase):
    """Kernels with AVX are chosen at run time: nothing else may have been compiled for it."""

    def emulate(self, *command, cpu=OLD, **variables):
        return run(EMULATOR, "-cpu", cpu, *command, **variables)

    def test_the_emulator_refuses_newer_instructions(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder) / "avx.c", pathlib.Path(folder) / "avx"
            source.write_text('int main(void) { __asm__ volatile("vpxor %%ymm0, %%ymm0, %%ymm0" ::: "xmm0"); return 0; }\n')
            subprocess.run([*os.environ.get("CC", "cc").split(), str(source), "-o", str(program)], check=True)
            self.emulate(program, cpu="max")
            with self.assertRaisesRegex(AssertionError, "ended with -4"):
                self.emulate(program)

    def test_training_in_two_processes(self):
        """The numbers of the baseline kernels differ in the last digits at most."""
        printed = [re.findall(r"[\d.]+$", launch(*emulator, EXAMPLES / "train"), re.MULTILINE) for emulator in ([EMULATOR, "-cpu", OLD], [])]
        self.assertEqual(len(printed[0]), 7)
        for old, new in zip(*printed):
            self.assertAlmostEqual(float(old), float(new), delta=0.02)

    def test_a_transformer(self):
        """Attention, GELU and cross entropy; without the measurement of matmuls, which takes a minute in the emulator."""
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text.txt"
            text.write_text("one two three four five six seven eight nine ten\n" * 100)
            output = self.emulate(EXAMPLES / "train_gpt", "--text", text, "--layers", 1, "--heads", 2, "--width", 32, "--context", 16,
                                  "--batch", 4, "--log-every", 1, "--eval-every", 0, "--sample-length", 1, "--steps", 2,
                                  ACCEL_CPU_KERNELS="onednn")
            self.assertRegex(output, r"step 2/2  loss \d")

    def test_embedded(self):
        self.assertRegex(self.emulate(EXAMPLES / "sixty_hertz", 10), r"^worst of 10 frames: ")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
