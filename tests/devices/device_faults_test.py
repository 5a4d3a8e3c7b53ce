#!/usr/bin/env python3
"""What a program sees when its device has no memory left, or is lost: an error that says so, and nothing else is lost.

On the simulated device, of which ACCEL_DEVICE_PLUGINS and SIMULATED_DEVICE_LIBRARY have the library.
"""

import ctypes
import os
import pathlib
import sys
import tempfile
import unittest

import accel
from accel import Accelerator, errors, nn, optim
from accel.nn import functional as F

MEMORY = 4 << 20
WIDTH = 64


def simulated():
    """The functions of simulated_device.h."""
    return ctypes.CDLL(os.environ["SIMULATED_DEVICE_LIBRARY"])


def fail_allocation(count):
    simulated().simulated_device_fail_allocation(ctypes.c_int32(-1), ctypes.c_int64(count))


class DeviceFaults(unittest.TestCase):
    def setUp(self):
        self.accelerator = Accelerator()
        self.assertEqual(str(self.accelerator.device), "sim:0")
        self.prepare()

    def tearDown(self):
        simulated().simulated_device_restore()
        self.accelerator.free_memory()

    def prepare(self):
        accel.set_seed(1)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))
        self.model, self.optimizer = self.accelerator.prepare(model, optim.AdamW(model.parameters(), lr=0.01))

    def train_step(self, rows=8):
        features = accel.ones(rows, WIDTH, device=self.accelerator.device)
        loss = F.cross_entropy(self.model(features), accel.zeros(rows, dtype=accel.int64, device=self.accelerator.device))
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def allocated(self):
        return accel.capi.accel_device_memory(self.accelerator.device)["allocated"]

    def test_the_next_smaller_batch_fits(self):
        before, tried = self.allocated(), []

        @accel.utils.find_executable_batch_size(starting_batch_size=1 << 15)
        def train(batch_size):
            tried.append(batch_size)
            return self.train_step(batch_size)

        train()
        self.assertGreater(len(tried), 1)
        self.assertEqual(tried, sorted(tried, reverse=True))
        self.assertLess(self.allocated() - before, 3 * sum(parameter.numel() for parameter in self.model.parameters()) * 4)

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
        with self.assertRaisesRegex(errors.Error, "sim:0.*cpu.*move"):
            self.model(accel.ones(2, WIDTH))


if __name__ == "__main__":
    os.environ.update(ACCELERATE_TORCH_DEVICE="sim", SIMULATED_DEVICE_MEMORY=str(MEMORY))
    unittest.main(argv=sys.argv[:1])
