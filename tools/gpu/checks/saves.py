# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: an asynchronous save holds the loop no longer than the copy of the state, and what is loaded has the bits: saves.py FOLDER MIB"""

import shutil
import statistics
import sys
import time

import accel
from accel import Accelerator, capi, nn, optim
from result import SHORT, figure, require
from saves_limits import held_too_long

WIDTH = 64 if SHORT else 2048


class Training:
    """A model whose parameters and states of AdamW have so many MiB, and a loop over it."""

    def __init__(self, accelerator, mebibytes):
        accel.set_seed(0)
        self.accelerator = accelerator
        layers = max(1, (mebibytes << 20) // (3 * 4 * WIDTH * WIDTH))
        model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])
        self.model, self.optimizer = accelerator.prepare(model, optim.AdamW(model.parameters(), lr=1e-3))
        self.rows = accel.ones(4, WIDTH, device=accelerator.device)

    def step(self):
        loss = self.model(self.rows).square().mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def timed_step(self):
        began = time.perf_counter()
        self.step()
        return time.perf_counter() - began

    def weights(self):
        return [parameter.detach().to("cpu").clone() for parameter in self.model.parameters()]


def seconds_of_copy(training):
    """Of as many bytes as a save copies, into ordinary memory of the host."""
    began = time.perf_counter()
    for parameter in training.model.parameters():
        for _ in range(3):
            parameter.detach().to("cpu").clone() if training.accelerator.device.type == "cpu" else parameter.detach().to("cpu")
    return time.perf_counter() - began


def hold(training, folder, step_seconds):
    """Seconds by which an asynchronous save and what it still does beside the loop lengthen the loop; and the call's."""
    began = time.perf_counter()
    training.accelerator.save_state(folder, asynchronous=True)
    call = time.perf_counter() - began
    after = training.weights() if folder.endswith("first") else None
    saved = [training.timed_step() for _ in range(5)]
    training.accelerator.wait_for_checkpoint()
    return call + sum(max(0.0, seconds - step_seconds) for seconds in saved), call, after


def main():
    folder, mebibytes = sys.argv[1], int(sys.argv[2])
    training = Training(Accelerator(), mebibytes)
    device = training.accelerator.device
    for _ in range(3):
        training.step()
    step_seconds = statistics.median(training.timed_step() for _ in range(5))
    copy = statistics.median(seconds_of_copy(training) for _ in range(3))

    began = time.perf_counter()
    training.accelerator.save_state(f"{folder}/synchronous")
    synchronous = time.perf_counter() - began
    shutil.rmtree(f"{folder}/synchronous")
    first, first_call, saved = hold(training, f"{folder}/first", step_seconds)
    later, later_call, _ = hold(training, f"{folder}/later", step_seconds)
    figure("checkpoint", mebibytes=mebibytes, device=str(device), synchronous_s=synchronous, copy_s=copy, first_held_s=first, first_call_s=first_call,
           later_held_s=later, later_call_s=later_call, step_s=step_seconds)

    # Ten steps since the first one was written: it must have the weights and the optimizer of its moment.
    training.accelerator.load_state(f"{folder}/first")
    for name, (mine, other) in enumerate(zip(training.weights(), saved)):
        require(accel.ops.equal(mine, other), f"parameter {name} is not what was saved: it changed while the save went on, or was not loaded")
    once = [training.step() for _ in range(3)]
    training.accelerator.load_state(f"{folder}/first")
    require([training.step() for _ in range(3)] == once, "two runs from one checkpoint have other losses: a state of the optimizer was not loaded")
    if device.type != "cpu":
        figure("memory", **{name: value for name, value in dict(capi.accel_device_memory(device)).items() if value is not None})
    require(not held_too_long(first, copy), f"the first asynchronous save held the loop {first:.3f} s; the copy takes {copy:.3f} s")
    require(not held_too_long(later, copy), f"an asynchronous save held the loop {later:.3f} s; the copy takes {copy:.3f} s")


if __name__ == "__main__":
    main()
