#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program sees when its device has no memory left, or is lost: device_faults_test.py DEVICE [unittest argument ...].

DEVICE is a kind: sim (the simulated one, of which ACCEL_DEVICE_PLUGINS and SIMULATED_DEVICE_LIBRARY have the library), cuda. Where this
machine has none the test is skipped, with the reason. On every device memory that another tensor holds makes the device small; faults that
only the simulated device has on demand are skipped on others.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import accel
import tested_device
from accel import Accelerator, errors, nn, optim
from accel.nn import functional as F

MEMORY = 64 << 20  # of the simulated device
WIDTH = 64
LARGE = 1 << 13  # rows, so that each tensor has pages of its own in a caching allocator
KIND = "sim"
needs_simulation = unittest.skipUnless(len(sys.argv) < 2 or sys.argv[1] == "sim", "only the simulated device fails on demand")


def simulated():
    """The functions of simulated_device.h."""
    return ctypes.CDLL(os.environ["SIMULATED_DEVICE_LIBRARY"])


def fail_allocation(count):
    simulated().simulated_device_fail_allocation(ctypes.c_int32(-1), ctypes.c_int64(count))


class Settings(ctypes.Structure):
    """simulated_device_settings"""

    _fields_ = [("device_count", ctypes.c_int32), ("memory_bytes", ctypes.c_int64), ("seed", ctypes.c_uint64), ("random_delay_us", ctypes.c_int64),
                ("copy_delay_us", ctypes.c_int64), ("operator_delay_us", ctypes.c_int64), ("pinned_bytes", ctypes.c_int64)]


class Statistics(ctypes.Structure):
    """simulated_device_statistics"""

    _fields_ = [(name, ctypes.c_int64) for name in ("allocations", "allocated_bytes", "copies", "operators", "streams", "pending_tasks",
                                                     "pageable_copies", "host_waits", "pinned_bytes", "peak_pinned_bytes", "launches",
                                                     "casts")]


def leave_memory(size):
    """As if other processes had all memory of the device but so many bytes."""
    settings, configure = Settings(), simulated().simulated_device_configure
    simulated().simulated_device_get_settings(ctypes.byref(settings))
    settings.memory_bytes, configure.restype = size, ctypes.c_char_p
    if (wrong := configure(ctypes.byref(settings))) is not None:
        raise ValueError(wrong.decode())


def fill(device, leaving=0):
    """Tensors that hold all memory of the device but so many bytes."""
    room = accel.empty(leaving, dtype=accel.uint8, device=device)  # free again at the end
    held, size = [], 1 << 40
    while size >= 512:
        try:
            held.append(accel.empty(size, dtype=accel.uint8, device=device))
        except errors.OutOfMemoryError:
            size //= 2
    del room
    return held


class DeviceFaults(unittest.TestCase):
    def setUp(self):
        self.accelerator = Accelerator()
        self.assertEqual(str(self.accelerator.device), f"{KIND}:0")
        self.prepare()

    def tearDown(self):
        if KIND == "sim":
            simulated().simulated_device_restore()
        self.accelerator.free_memory()

    def prepare(self, width=WIDTH):
        accel.set_seed(1)
        self.width = width
        model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))
        self.model, self.optimizer = self.accelerator.prepare(model, optim.AdamW(model.parameters(), lr=0.01))

    def loss(self, rows):
        features = accel.ones(rows, self.width, device=self.accelerator.device)
        return F.cross_entropy(self.model(features), accel.zeros(rows, dtype=accel.int64, device=self.accelerator.device))

    def train_step(self, rows=8):
        loss = self.loss(rows)
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def allocated(self):
        return accel.capi.accel_device_memory(self.accelerator.device)["allocated"]

    def test_the_next_smaller_batch_fits(self):
        self.train_step()  # libraries of the device have their memory
        held = fill(self.accelerator.device, leaving=MEMORY // 4)
        before, tried = self.allocated(), []

        @accel.utils.find_executable_batch_size(starting_batch_size=1 << 18)
        def train(batch_size):
            tried.append(batch_size)
            return self.train_step(batch_size)

        train()
        self.assertGreater(len(tried), 1)
        self.assertEqual(tried, sorted(tried, reverse=True))
        self.assertLess(self.allocated() - before, 3 * sum(parameter.numel() for parameter in self.model.parameters()) * 4)
        held.clear()

    def test_memory_that_ends_in_the_forward_the_backward_and_the_update(self):
        """The error is that of memory, and the same step works when there is memory again."""
        self.train_step(LARGE)
        for phase in ("forward", "backward", "update"):
            with self.subTest(phase):
                self.accelerator.free_memory()
                self.prepare(width=1024)  # states and gradients that are larger than what an allocator has left
                rows = LARGE // 16
                held = fill(self.accelerator.device) if phase == "forward" else []
                with self.assertRaisesRegex(errors.OutOfMemoryError, "out of memory"):
                    loss = self.loss(rows)
                    held += fill(self.accelerator.device) if phase == "backward" else []
                    self.accelerator.backward(loss)
                    held += fill(self.accelerator.device) if phase == "update" else []
                    self.optimizer.step()
                self.assertTrue(held, "nothing failed before the phase")
                held.clear()
                loss = None
                self.optimizer.zero_grad()
                self.assertGreater(self.train_step(rows), 0)

    @needs_simulation
    def test_a_device_that_another_process_fills(self):
        """From the first allocation on: what does not fit says what to do, what fits works, and so does all when the other one has ended."""
        rows = self.accelerator.prepare(accel.DataLoader([accel.ones(WIDTH)] * 64, batch_size=64))
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4))
        before = [parameter.tolist() for parameter in model.parameters()]
        advice = "sim out of memory.*free; take a smaller batch, or end what else uses this memory"
        accel.capi.accel_device_empty_cache(self.accelerator.device)
        leave_memory(self.allocated() + 4096)
        try:
            with self.assertRaisesRegex(errors.OutOfMemoryError, advice):
                accel.ones(WIDTH, WIDTH, device=self.accelerator.device)
            with self.assertRaisesRegex(errors.OutOfMemoryError, advice):
                self.accelerator.prepare(model)
            with self.assertRaisesRegex(errors.OutOfMemoryError, advice):
                next(iter(rows))
            # What stays on the host is whole.
            self.assertEqual([parameter.tolist() for parameter in model.to("cpu").parameters()], before)
            self.assertEqual(accel.ones(8, device=self.accelerator.device).sum().item(), 8)
        finally:
            leave_memory(MEMORY)
        self.assertEqual(next(iter(rows)).sum().item(), 64 * WIDTH)
        self.prepare()
        self.assertGreater(self.train_step(), 0)

    @needs_simulation
    def test_a_job_that_finds_its_device_full(self):
        """The state needs no memory of the device; the first tensor does, and the next smaller one fits."""
        script = ("import accel; from accel import errors; device = accel.Accelerator().device\n"
                  "for size in (1 << 20, 1 << 10, 1 << 6):\n"
                  "    try: print(accel.ones(size, device=device).sum().item())\n"
                  "    except errors.OutOfMemoryError as error: print(error)\n")
        done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "SIMULATED_DEVICE_MEMORY": "8192"}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        full, *fitting = done.stdout.splitlines()
        self.assertRegex(full, "Tried to allocate 4.00 MiB.*free; take a smaller batch")
        self.assertEqual(fitting, ["1024.0", "64.0"])

    @needs_simulation
    def test_every_allocation_of_a_step_may_fail(self):
        """In the forward, the backward and the optimizer: the error is that of memory, and training goes on."""
        failed = 0
        for count in range(1, 400):
            self.accelerator.free_memory()
            self.prepare()
            fail_allocation(count)
            try:
                self.train_step()
                break  # it has fewer allocations than this
            except errors.OutOfMemoryError as error:
                self.assertIn("out of memory", str(error))
                failed += 1
            finally:
                fail_allocation(0)
            self.optimizer.zero_grad()
            self.assertGreater(self.train_step(), 0)
        self.assertGreater(failed, 10)

    @needs_simulation
    def test_a_module_that_only_partly_fits_stays_where_it_is(self):
        """Regression: the tensors that fitted stayed on the device when a later one did not."""
        layer = nn.Linear(WIDTH, WIDTH)
        before = {name: tensor.tolist() for name, tensor in layer.named_parameters()}
        fail_allocation(2)
        try:
            with self.assertRaisesRegex(errors.OutOfMemoryError, "out of memory"), accel.utils.align_module_device(layer, self.accelerator.device):
                pass
        finally:
            fail_allocation(0)
        self.assertEqual({str(tensor.device) for tensor in layer.parameters()}, {"cpu"})
        self.assertEqual({name: tensor.tolist() for name, tensor in layer.named_parameters()}, before)

    @needs_simulation
    def test_a_checkpoint_outlives_a_device_that_is_lost_in_a_save(self):
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "state")
            self.train_step()
            self.accelerator.save_state(state)
            saved = [parameter.tolist() for parameter in self.model.parameters()]
            files = {path: path.read_bytes() for path in pathlib.Path(state).rglob("*") if path.is_file()}
            self.train_step()
            simulated().simulated_device_lose(ctypes.c_int32(0))
            with self.assertRaisesRegex(errors.Error, "sim:0 is lost"):
                self.accelerator.save_state(state)
            self.assertEqual({path: path.read_bytes() for path in pathlib.Path(folder).rglob("*") if path.is_file()}, files)
            simulated().simulated_device_restore()
            self.accelerator.free_memory()
            self.prepare()
            self.accelerator.load_state(state)
            self.assertEqual([parameter.tolist() for parameter in self.model.parameters()], saved)

    @needs_simulation
    def test_a_device_that_is_unplugged_in_the_middle_of_a_save(self):
        """Its copies wait behind a kernel then: what is written so far is no checkpoint, and the former one is whole."""
        for asynchronous in (False, True):
            with self.subTest(asynchronous=asynchronous), tempfile.TemporaryDirectory() as folder:
                state = os.path.join(folder, "state")
                self.train_step()
                self.accelerator.save_state(state)
                saved = [parameter.tolist() for parameter in self.model.parameters()]
                files = {path: path.read_bytes() for path in pathlib.Path(folder).rglob("*") if path.is_file()}
                self.train_step()
                accel.capi.accel_device_synchronize(self.accelerator.device)
                simulated().simulated_device_run_kernel(ctypes.c_int32(0), ctypes.c_int64(600_000_000))
                unplugged = threading.Thread(target=self.lose_when_copies_wait)
                unplugged.start()
                with self.assertRaisesRegex(errors.Error, "sim:0 is lost"):
                    self.accelerator.save_state(state, asynchronous=asynchronous)
                    self.accelerator.wait_for_checkpoint()
                unplugged.join()
                self.assertEqual({path: path.read_bytes() for path in pathlib.Path(folder).rglob("*") if path.is_file()}, files)
                simulated().simulated_device_restore()
                self.accelerator.free_memory()
                self.prepare()
                self.accelerator.load_state(state)
                self.assertEqual([parameter.tolist() for parameter in self.model.parameters()], saved)

    @needs_simulation
    def test_the_end_of_the_program_finishes_a_save(self):
        program = ("import sys; from accel import Accelerator, nn; a = Accelerator(); m = a.prepare(nn.Linear(500, 500));"
                   " weight = next(iter(m.parameters())).detach(); weight.fill_(7); a.save_state(sys.argv[1], asynchronous=True); weight.fill_(8)")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-c", program, f"{folder}/s"], check=True, timeout=120,
                           env={**os.environ, "SIMULATED_DEVICE_COPY_DELAY_US": "50000"})
            saved = accel.capi.accel_load(f"{folder}/s/model.safetensors", None)
            self.assertEqual({number for row in saved["weight"].tolist() for number in row}, {7.0})

    def lose_when_copies_wait(self):
        statistics, until = Statistics(), time.monotonic() + 60
        while statistics.pending_tasks < 2 and time.monotonic() < until:
            time.sleep(0.001)
            simulated().simulated_device_get_statistics(ctypes.c_int32(0), ctypes.byref(statistics))
        simulated().simulated_device_lose(ctypes.c_int32(0))

    @needs_simulation
    def test_a_device_that_is_lost_in_a_step(self):
        self.train_step()
        loss = self.model(accel.ones(2, WIDTH, device=self.accelerator.device)).sum()
        simulated().simulated_device_lose(ctypes.c_int32(0))
        with self.assertRaisesRegex(errors.Error, "sim:0 is lost"):
            self.accelerator.backward(loss)
        with self.assertRaisesRegex(errors.Error, "sim:0 is lost"):
            self.train_step()
        simulated().simulated_device_restore()

    def test_a_tensor_of_another_device_than_the_model(self):
        with self.assertRaisesRegex(errors.Error, f"{KIND}:0.*cpu.*move"):
            self.model(accel.ones(2, WIDTH))


if __name__ == "__main__":
    KIND = sys.argv[1]
    os.environ.update(ACCELERATE_TORCH_DEVICE=KIND, SIMULATED_DEVICE_MEMORY=str(MEMORY))
    tested_device.skip_without(KIND)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
