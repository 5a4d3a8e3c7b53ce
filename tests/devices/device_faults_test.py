#!/usr/bin/env python3
"""What a program sees when its device has no memory left, or is lost: device_faults_test.py DEVICE [unittest argument ...].

DEVICE is a kind: sim (the simulated one, of which ACCEL_DEVICE_PLUGINS and SIMULATED_DEVICE_LIBRARY have the library), cuda. Where this
machine has none the test is skipped, with the reason. On every device memory that another tensor holds makes the device small; faults that
only the simulated device has on demand are skipped on others.
"""

import ctypes
import os
import pathlib
import sys
import tempfile
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
