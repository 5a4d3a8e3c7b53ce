#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LibTorch's CUDA part is found beside libtorch_cpu.so and loaded before LibTorch decides that there is none, on machines without a GPU.

usage: accelerator_library_test.py PROGRAM LAUNCHER LIBTORCH DRIVER LIBRARY NCCL_FOLDER PROBE PACKAGE REAL_LIBTORCH
[unittest argument ...]

PROGRAM is accelerator_order, LIBTORCH the lib folder of the build's LibTorch, DRIVER the preloaded stand-in for a driver, LIBRARY
that for libtorch_cuda.so, NCCL_FOLDER the folder of that for the NCCL plugin, PROBE a library that tells which hooks LibTorch has, PACKAGE
the folder of the Python package. REAL_LIBTORCH is the lib folder of a Python's torch with CUDA; empty: its tests are skipped.
"""

import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "devices"))
import orders

NVIDIA, AMD = "/dev/nvidiactl", "/dev/kfd"
STEPS = ("seed", "generator", "conv", "backward", "pin", "state")
UNSET = ("ACCELERATE_USE_CPU", "ACCELERATE_TORCH_DEVICE", "ACCEL_DEVICE_PLUGINS", "ACCEL_BACKEND", "CUDA_VISIBLE_DEVICES")


def environment_of(libraries, driver=NVIDIA, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment.update(LD_LIBRARY_PATH=str(libraries), LD_PRELOAD=DRIVER, ACCEL_LOG="warning", OMP_NUM_THREADS="1")
    if driver:
        environment["STAND_IN_DRIVER"] = driver
    return {**environment, **variables}


def run(libraries, *steps, driver=NVIDIA, **variables):
    """What the program printed, its lines by their names, and what it logged."""
    done = subprocess.run([PROGRAM, *steps], env=environment_of(libraries, driver, **variables), capture_output=True, text=True, timeout=100,
                          check=False)
    assert done.returncode == 0, f"{steps}: {done.returncode}\n{done.stdout}{done.stderr}"
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line), done.stderr


def run_orders(libraries, tried, **variables):
    """{steps: what the program printed} of a process for each order."""
    arguments = [word for steps in tried for word in ("/", *steps)][1:]
    done = subprocess.run([PROGRAM, *arguments], env=environment_of(libraries, **variables), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-300:]}{done.stderr}"
    found = {}
    for block in done.stdout.split("order: ")[1:]:
        steps, *lines = block.splitlines()
        found[tuple(steps.split())] = dict(line.split(": ", 1) for line in lines)
    assert list(found) == list(tried), f"the program tried {list(found)}"
    return found


class WithStandIn(unittest.TestCase):
    """A LibTorch whose CUDA part is the stand-in: links to the build's, in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = pathlib.Path(folder.name)
        self.libraries = self.site / "torch" / "lib"
        self.libraries.mkdir(parents=True)
        real = pathlib.Path(LIBTORCH)
        for file in real.iterdir():
            if "cuda" not in file.name:
                (self.libraries / file.name).symlink_to(file)
        for beside in ("nvidia", "torch.libs"):  # where LibTorch's own run path leads
            if (real.parents[1] / beside).is_dir():
                (self.site / beside).symlink_to(real.parents[1] / beside)
        self.cuda = self.libraries / "libtorch_cuda.so"

    def install(self):
        self.cuda.symlink_to(LIBRARY)

    # Regression: after a convolution or a backward on the CPU, a GPU could not be used for the rest of the process: LibTorch had
    # decided that there is none.
    def try_orders(self, tried):
        self.install()
        for steps, printed in run_orders(self.libraries, tried).items():
            with self.subTest(steps):
                self.assertEqual((printed["hooks"], printed["devices"]), ("real", "1 "))


class Combinations(WithStandIn):
    def test_each_three_steps_in_each_order(self):
        self.try_orders([*itertools.permutations(STEPS, 3)])


class StandIn(WithStandIn):
    def test_each_step_before_each_other(self):
        self.try_orders([*orders.covering_orders(STEPS)])

    def test_a_question_is_needed_for_the_load(self):
        self.install()
        printed, _ = run(self.libraries)
        self.assertEqual((printed["library"], printed["devices"], printed["hooks"]), ("not loaded", "1 ", "real"))

    def test_who_chooses_the_cpu_pays_nothing(self):
        self.install()
        for steps, variables in ((("host_state", "seed", "conv", "backward"), {}), (("host_state", "conv", "release"), {}), (("state", "conv", "backward"), {"ACCELERATE_USE_CPU": "1"}),
                                 (("conv", "backward", "state"), {"ACCELERATE_TORCH_DEVICE": "cpu"})):
            with self.subTest(steps):
                printed, log = run(self.libraries, *steps, **variables)
                self.assertEqual((printed["library"], printed["hooks"], log), ("not loaded", "none", ""))
                # Asked for a GPU afterwards: the reason, instead of a device that half works.
                self.assertTrue(printed["devices"].startswith("0 LibTorch was asked for CUDA before its library was loaded"), printed)
                self.assertIn("had chosen the CPU", printed["devices"])

    def test_who_chose_the_cpu_may_have_a_gpu_later(self):
        """As long as LibTorch was not asked: a seed alone does not ask."""
        self.install()
        printed, _ = run(self.libraries, "host_state", "seed", "release", "state")
        self.assertEqual((printed["hooks"], printed["state"]), ("real", "type 1"))

    def test_no_driver(self):
        self.install()
        printed, log = run(self.libraries, "backward", "state", driver="")
        self.assertEqual((printed["library"], printed["devices"], log),
                         ("not loaded", "0 there is no driver of CUDA here; expected a driver of NVIDIA", ""))

    def test_driver_without_the_library(self):
        for driver, words in ((NVIDIA, "there is a driver of NVIDIA, but this LibTorch was built without CUDA"), (AMD, "there is a driver of AMD")):
            printed, log = run(self.libraries, "state", "release", "state", driver=driver)
            self.assertEqual(log.count(words), 1, log)
            self.assertEqual(printed["state"], "type 0")

    def test_a_library_that_cannot_be_loaded(self):
        self.cuda.write_text("no library")
        printed, log = run(self.libraries, "backward", "state", "release", "state")
        self.assertEqual(log.count("libtorch_cuda.so cannot be loaded: "), 1, log)
        self.assertIn("cannot be loaded", printed["devices"])
        done = subprocess.run([PROGRAM, "state"], env=environment_of(self.libraries, ACCELERATE_TORCH_DEVICE="cuda"), capture_output=True, text=True,
                              timeout=100, check=False)
        self.assertEqual(done.returncode, 3)
        self.assertIn("cannot be loaded", done.stderr)

    def test_a_driver_without_a_card(self):
        self.install()
        printed, log = run(self.libraries, "state", STAND_IN_DEVICES="0")
        self.assertEqual(log.count("LibTorch finds no device of CUDA"), 1, log)
        self.assertEqual(printed["state"], "type 0")

    def test_hidden_cards(self):
        self.install()
        for hidden in ("", "7"):
            printed, log = run(self.libraries, "state", STAND_IN_DEVICES="0", CUDA_VISIBLE_DEVICES=hidden)
            self.assertEqual(log, "")
            self.assertIn(f"CUDA_VISIBLE_DEVICES is '{hidden}', which may hide them", printed["devices"])

    def test_a_device_that_is_not_there(self):
        self.install()
        done = subprocess.run([PROGRAM, "state"], env=environment_of(self.libraries, ACCELERATE_TORCH_DEVICE="cuda:3"), capture_output=True, text=True,
                              timeout=100, check=False)
        self.assertIn("torch_device is 'cuda:3' (from ACCELERATE_TORCH_DEVICE): device cuda:3 is not there; this machine has 1", done.stderr)

    def test_a_container_without_the_drivers_folder(self):
        """It has the files of its cards in /dev and no /proc/driver/nvidia: who counts cards finds the same number."""
        self.assertFalse(os.path.exists("/proc/driver/nvidia"), "this machine has the driver's folder")
        self.install()
        devices = self.site / "dev"
        devices.mkdir()
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "null"):
            (devices / name).touch()
        for visible, cards in ((None, 2), ("1", 1), ("", 0), ("5", 0)):
            with self.subTest(CUDA_VISIBLE_DEVICES=visible):
                variables = {"STAND_IN_DEV": str(devices), "STAND_IN_DEVICES": str(cards), **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})}
                environment = environment_of(self.libraries, **variables)
                printed, _ = run(self.libraries, "state", **variables)
                self.assertEqual((printed["devices"].split(" ")[0], printed["state"]), (str(cards), f"type {min(cards, 1)}"))
                reported = subprocess.run([LAUNCHER, "env", "--json"], env=environment, capture_output=True, text=True, timeout=100, check=True)
                report = json.loads(reported.stdout)
                self.assertEqual(report["devices"]["nvidia"], [{"file": "nvidia0"}, {"file": "nvidia1"}])
                self.assertEqual(report["devices"]["nvidia_visible"], "all" if visible is None else visible or "none")
                launched = subprocess.run([LAUNCHER, "launch", "--", PROGRAM, "state", "describe"], env={**environment, "ACCEL_PLUGIN_PATH": NCCL_FOLDER},
                                          capture_output=True, text=True, timeout=100, check=False)
                self.assertEqual(launched.returncode, 0, launched.stderr)
                self.assertEqual(set(re.findall(r"num_processes = (\d+)", launched.stdout)), {str(max(cards, 1))}, launched.stdout)

    def launch(self, ranks, *arguments, **variables):
        environment = environment_of(self.libraries, **variables)
        # A folder for each: the stand-in for NCCL, and the real plugin for UCX.
        return subprocess.run([LAUNCHER, "launch", "--num-processes", str(ranks), *arguments, "--", PROGRAM, "state", "describe"],
                              env={**environment, "ACCEL_PLUGIN_PATH": NCCL_FOLDER}, capture_output=True, text=True, timeout=100, check=False)

    # Regression: two ranks on one GPU failed at their first collective with "invalid usage" and no advice.
    def test_ranks_that_share_a_card(self):
        self.install()
        began = self.launch(2, STAND_IN_DEVICE="GPU-1")
        self.assertNotEqual(began.returncode, 0)
        self.assertIn("the nccl backend does not start: ranks ", began.stderr)
        self.assertRegex(began.stderr, "ranks (0 and 1|1 and 0) are both on GPU GPU-1; expected backend cuda:staged")
        apart = self.launch(2)
        self.assertEqual(apart.returncode, 0, apart.stderr)
        self.assertIn("backend = cuda:nccl,cpu:ucx", apart.stdout)

    def test_a_card_is_shared_by_staging(self):
        self.install()
        for arguments, variables in ((("--backend", "cuda:staged"), {}), ((), {"ACCEL_BACKEND": "cuda:staged"}), ((), {"ACCEL_BACKEND": "staged"})):
            with self.subTest(arguments or variables):
                shared = self.launch(2, *arguments, STAND_IN_DEVICE="GPU-1", **variables)
                self.assertEqual(shared.returncode, 0, shared.stderr)
                self.assertIn("backend = cpu:ucx,cuda:staged", shared.stdout)
                self.assertIn("collectives of cuda tensors = staged through host memory", shared.stdout)

    def test_backends_that_cannot_be_meant(self):
        self.install()
        for given, words in (("xpu:staged", "and the state computes on cuda; expected backends of cuda and cpu"), ("cuda:ucx", "'ucx' does not send tensors of cuda"),
                             ("cpu:staged", "'staged' does not send tensors of cpu; expected ucx"), ("cuda:accelerator", "no collectives of its own"),
                             ("cuda:gloo", "'gloo' does not send tensors of cuda; expected nccl or staged, or the NAME of a plugin"), ("cuda:", "does not send tensors of cuda")):
            with self.subTest(given):
                done = self.launch(2, ACCEL_BACKEND=given)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


class Real(unittest.TestCase):
    """The real libtorch_cuda.so, without a card."""

    @classmethod
    def setUpClass(cls):
        if not REAL_LIBTORCH or not PACKAGE:
            raise unittest.SkipTest("there is no torch with CUDA (tools/setup.sh --torch), or no Python package")

    def test_each_order(self):
        for steps, printed in run_orders(REAL_LIBTORCH, orders.covering_orders(STEPS)).items():
            with self.subTest(steps):
                self.assertEqual((printed["library"], printed["hooks"]), ("loaded", "real"))

    def test_the_reason_is_said(self):
        _, log = run(REAL_LIBTORCH, "backward", "state")
        self.assertIn("LibTorch finds no device of CUDA", log)

    def test_each_order_with_torch(self):
        """The same in Python, where torch loads the library itself when it is imported."""
        python = pathlib.Path(REAL_LIBTORCH).parents[4] / "bin" / "python"
        lines = {"seed": "accel.set_seed(7)", "generator": "accel.Generator().manual_seed(7)", "backward": "accel.nn.Linear(2, 2)(accel.ones(2, 2)).sum().backward()",
                 "state": "accel.Accelerator()", "torch": "import torch", "torch's backward": "import torch; torch.ones(2, requires_grad=True).sum().backward()"}
        end = f"import ctypes; print(ctypes.CDLL({PROBE!r}).cuda_hooks_are_real())"
        for steps in orders.covering_orders(lines):
            with self.subTest(steps):
                environment = environment_of("", PYTHONPATH=PACKAGE)
                done = subprocess.run([python, "-W", "ignore", "-c", "\n".join(["import accel", *(lines[step] for step in steps), end])], env=environment,
                                      capture_output=True, text=True, timeout=200, check=False)
                self.assertEqual((done.returncode, done.stdout), (0, "1\n"), done.stderr)


if __name__ == "__main__":
    PROGRAM, LAUNCHER, LIBTORCH, DRIVER, LIBRARY, NCCL_FOLDER, PROBE = map(os.path.abspath, sys.argv[1:8])
    PACKAGE, REAL_LIBTORCH = sys.argv[8:10]
    unittest.main(argv=[sys.argv[0], *sys.argv[10:]])
