# SPDX-License-Identifier: Apache-2.0
"""Dispatched models of torch on a simulated accelerator: copies of them, and the memory that tied weights have. Run by test_torch_devices.py in a
process with ACCEL_DEVICE_PLUGINS."""

import copy
import gc
import pickle
import tempfile

import simulated_torch
import torch

import accel
from accel import capi
from simulated_torch import DEVICE

WIDTH = 128
BYTES = WIDTH * WIDTH * 4


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(3, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.Linear(WIDTH, 2)
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.last(self.norm(self.first(x))) * self.scale


def streams_of(model):
    streams = {getattr(getattr(module, "_hf_hook", None), "_stream", None) for module in model.modules()}
    return streams - {None}


def cpu_offloaded(model, _folder):
    return accel.cpu_offload(model, DEVICE)


def on_device_and_cpu(model, _folder):
    return accel.dispatch_model(model, {"first": DEVICE, "norm": "cpu", "last": DEVICE, "scale": DEVICE})


def on_device_and_disk(model, folder):
    return accel.dispatch_model(model, {"first": DEVICE, "norm": "disk", "last": "cpu", "scale": DEVICE}, offload_dir=folder)


def loaded(model, folder):
    accel.save(model.state_dict(), f"{folder}/model.safetensors", safe_serialization=True)
    return accel.load_checkpoint_and_dispatch(model, folder, {"first": DEVICE, "norm": "disk", "last": "disk", "scale": "cpu"}, offload_folder=folder)


def prepared(model, folder):
    return accel.Accelerator(torch_device=DEVICE).prepare_model(on_device_and_cpu(model, folder), evaluation_mode=True)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


# Regression: `copy.deepcopy()` and pickle of a model of torch with offloaded weights failed: "cannot pickle
# 'accel.capi.accel_weight_stream' object".
# Regression: a copy of a prepared model of torch that was dispatched before lost the hook of its root.
def check_copies(dispatch, duplicate, folder):
    name = f"{dispatch.__name__}, {duplicate.__name__}"
    model, x = Net().eval().requires_grad_(False), torch.linspace(-1, 1, 12).reshape(4, 3)
    expected = model(x)
    original = dispatch(model, folder)
    copied = duplicate(original)
    assert not streams_of(copied) & streams_of(original) and len(streams_of(copied)) == len(streams_of(original)), name
    assert copied.last.forward is not original.last.forward
    for one in (copied, original, copied):
        torch.testing.assert_close(one(x).cpu(), expected)
    accel.hooks.remove_hook_from_submodules(original)
    for parameter in original.parameters():
        parameter.zero_()
    torch.testing.assert_close(copied(x).cpu(), expected, msg=f"{name}: the copy has the weights of the original")
    del model, original
    gc.collect()
    torch.testing.assert_close(copied(x).cpu(), expected, msg=f"{name}: the original is gone")
    accel.hooks.remove_hook_from_submodules(copied)
    if dispatch is not loaded:  # whose weights on the disk were never in the model
        torch.testing.assert_close(copied.cpu()(x), expected)


class Inner(torch.nn.Module):
    def __init__(self, parameter):
        super().__init__()
        self.parameter = parameter

    def forward(self, x):
        return x + torch.max(self.parameter)


class Outer(torch.nn.Linear):
    """A layer whose weight is that of four modules inside, too."""

    def __init__(self):
        super().__init__(WIDTH, WIDTH, bias=False)
        self.inner = torch.nn.ModuleList(Inner(self.weight) for _ in range(4))

    def forward(self, x):
        return sum(torch.nn.functional.linear(inner(x), self.weight) for inner in self.inner)


def memory(kind):
    return capi.accel_device_memory(accel.Device(DEVICE))[kind]


# Regression: tied weights of modules inside of each other were on the device once for each of them, and three of them stayed
# after the forward.
# Regression: a module with tied weights got another weight, whose memory was where a tensor had been that was freed.
def check_tied_weights(dispatch):
    """Tied weights of modules that are in use at once are on the device once, and away after the forward."""
    model, x = torch.nn.Sequential(Outer(), Outer()).requires_grad_(False), torch.linspace(-1, 1, WIDTH).reshape(1, WIDTH)
    expected = model(x)
    gc.collect()
    before = memory("allocated")
    dispatch(model)
    stays = memory("allocated") - before
    copies = [copy.deepcopy(model) for _ in range(4)]  # which get memory that others had
    for one in (model, *copies):
        held = memory("allocated")
        capi.accel_device_reset_peak_memory(accel.Device(DEVICE))
        torch.testing.assert_close(one(x).cpu(), expected)
        assert memory("peak_allocated") - held < 1.5 * BYTES, (memory("peak_allocated") - held) / BYTES
        assert memory("allocated") == held, memory("allocated") - held
    return stays // BYTES


def main():
    simulated_torch.register()
    for dispatch in (cpu_offloaded, on_device_and_cpu, on_device_and_disk, loaded, prepared):
        for duplicate in (copy.deepcopy, pickled):
            with tempfile.TemporaryDirectory() as folder:
                check_copies(dispatch, duplicate, folder)
    assert check_tied_weights(lambda model: accel.dispatch_model(model, {"0": DEVICE, "1": "cpu"})) == 1
    assert check_tied_weights(lambda model: accel.cpu_offload(model, DEVICE)) == 0
    print("equal")


if __name__ == "__main__":
    main()
