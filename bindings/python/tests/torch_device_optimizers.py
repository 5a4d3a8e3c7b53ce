# SPDX-License-Identifier: Apache-2.0
"""Optimizers of torch on a simulated accelerator: a training that is resumed has the bits of one that was not, and of torch's own. Run by
test_torch_optimizers.py in a process with ACCEL_DEVICE_PLUGINS."""

import copy
import io
import sys
import tempfile

import simulated_torch
import torch

import accel
from simulated_torch import DEVICE

optim = torch.optim
FUSED = (optim.Adam, optim.AdamW, optim.SGD)  # those whose update the package computes
CASES = [(optim.Adam, {}), (optim.Adam, {"amsgrad": True}), (optim.AdamW, {"weight_decay": 0.1}), (optim.AdamW, {"foreach": True}),
         (optim.AdamW, {"foreach": False}), (optim.AdamW, {"fused": True}), (optim.AdamW, {"fused": False}), (optim.SGD, {"lr": 0.1}),
         (optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.NAdam, {}), (optim.NAdam, {"foreach": False}), (optim.RAdam, {}), (optim.Adamax, {}),
         (optim.ASGD, {}), (optim.Adadelta, {}), (optim.Adagrad, {}), (optim.RMSprop, {"momentum": 0.9, "centered": True}), (optim.Rprop, {}),
         (optim.Adafactor, {})]


def new_model():
    model, generator = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.Flatten(), torch.nn.Linear(12, 5)), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model.to(DEVICE)


def train(model, optimizer, steps):
    for step in steps:
        inputs = torch.randn(4, 2, 3, 3, generator=torch.Generator().manual_seed(step)).to(DEVICE)
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def new_training(kind, settings):
    accelerator = accel.Accelerator(torch_device=DEVICE)
    model = new_model()
    return accelerator, *accelerator.prepare(model, kind(model.parameters(), **settings))


# Regression: a torch optimizer that was resumed on a GPU failed in its first step: torch's `load_state_dict()` leaves the counts
# of steps on the CPU.
def through_a_folder(former, following):
    """save_state() and load_state()."""
    with tempfile.TemporaryDirectory() as folder:
        former[0].save_state(folder)
        following[0].load_state(folder)


def through_a_file_of_torch(former, following):
    """What torch.save() wrote and torch.load() puts on the CPU."""
    file = io.BytesIO()
    torch.save([to_cpu(thing.state_dict()) for thing in former[1:]], file)
    file.seek(0)
    for thing, state in zip(following[1:], torch.load(file)):
        thing.load_state_dict(state)


def through_a_program(former, following):
    """Steps that the program sets: numbers on the CPU, of another type."""
    through_a_file_of_torch(former, following)
    for state in following[2].state.values():
        if "step" in state and type(following[2].optimizer) in FUSED:
            state["step"] = torch.tensor(float(state["step"]), dtype=torch.float64)


def to_cpu(value):
    if isinstance(value, dict):
        return {key: to_cpu(item) for key, item in value.items()}
    return [to_cpu(item) for item in value] if isinstance(value, list) else value.cpu() if isinstance(value, torch.Tensor) else value


def expected_of(kind, settings):
    """The weights and states of torch's own training."""
    own = {**settings, "fused": True} if kind in FUSED and not {"foreach", "fused"} & settings.keys() else settings
    model = new_model()
    optimizer = kind(model.parameters(), **own)
    train(model, optimizer, range(6))
    return weights_of(model), list(optimizer.state.values())


def weights_of(model):
    return [parameter.detach().cpu() for parameter in model.parameters()]


def check(kind, settings, resume):
    expected, states = expected_of(kind, settings)
    former = new_training(kind, settings)
    train(*former[1:], range(3))
    following = new_training(kind, settings)
    resume(former, following)
    train(*following[1:], range(3, 6))
    name = f"{kind.__name__} {settings} {resume.__name__}"
    assert all(map(torch.equal, weights_of(following[1]), expected)), name
    for mine, theirs in zip(following[2].state.values(), states):
        for key, value in theirs.items():
            equal = torch.equal(mine[key].cpu(), value.cpu()) if isinstance(value, torch.Tensor) else mine[key] == value
            assert equal, f"{name}: {key}: {mine[key]}, expected {value}"
    is_ours = kind in FUSED and settings.get("fused") is not False and "foreach" not in settings
    assert repr(following[2]).endswith("fused)") == is_ours, name
    again = kind(new_model().parameters(), **settings)  # torch reads what is saved
    again.load_state_dict(copy.deepcopy(following[2].state_dict()))
    for thing in (former, following):
        thing[0].free_memory()


# Regression: a group of a torch optimizer with parameters on two devices, or of two types, failed on a GPU.
def check_mixed_groups():
    """One group with parameters on two devices and of two types."""
    def parameters():
        return [torch.nn.Parameter(torch.linspace(-1, 1, 6, dtype=dtype).to(device)) for device in (DEVICE, "cpu") for dtype in (torch.float32, torch.float64)]

    for kind, settings in ((optim.AdamW, {}), (optim.Adam, {"amsgrad": True}), (optim.SGD, {"lr": 0.1, "momentum": 0.9})):
        mine, theirs = parameters(), parameters()
        prepared, own = accel.Accelerator(torch_device=DEVICE).prepare(kind(mine, **settings)), kind(theirs, fused=True, **settings)
        for step in range(3):
            for tensors in (mine, theirs):
                for tensor in tensors:
                    tensor.grad = torch.full_like(tensor, step - 0.7)
            prepared.step()
            own.step()
        assert repr(prepared).endswith("fused)")
        assert all(map(torch.equal, mine, theirs)), kind


def check_moved_model():
    """A model that goes to the CPU and back between two loads."""
    accelerator, model, optimizer = new_training(optim.Adam, {})
    train(model, optimizer, range(2))
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        model.cpu()
        accelerator.load_state(folder, map_location="cpu")
        assert {state["exp_avg"].device.type for state in optimizer.state.values()} == {"cpu"}
        model.to(DEVICE)
        accelerator.load_state(folder, map_location="on_device")
        assert {state["exp_avg"].device.type for state in optimizer.state.values()} == {"sim"}
    train(model, optimizer, range(2, 6))
    assert all(map(torch.equal, weights_of(model), expected_of(optim.Adam, {})[0]))


# Regression: an optimizer that was loaded, or began with states, before `prepare()` brought the model to an accelerator kept them
# on the CPU, and failed at its first step.
def check_loaded_on_the_cpu(kind, settings, optimizer_first):
    """A program that resumes before it prepares: the model and the states of its optimizer are on the CPU then."""
    former = new_training(kind, settings)
    train(*former[1:], range(3))
    saved = [to_cpu(thing.state_dict()) for thing in former[1:]]
    former[0].free_memory()
    model = new_model().cpu()
    optimizer = kind(model.parameters(), **settings)
    for thing, state in zip((model, optimizer), saved):
        thing.load_state_dict(state)
    accelerator = accel.Accelerator(torch_device=DEVICE)
    things = accelerator.prepare(*((optimizer, model) if optimizer_first else (model, optimizer)))
    train(model, things[0 if optimizer_first else 1], range(3, 6))
    expected, _ = expected_of(kind, settings)
    assert all(map(torch.equal, weights_of(model), expected)), f"{kind.__name__} {settings} {optimizer_first}"
    accelerator.free_memory()


def check_loss_scaling():
    accel.PartialState._reset_state()
    accelerator = accel.Accelerator(torch_device=DEVICE, mixed_precision="fp16", kwargs_handlers=[accel.GradScalerKwargs(init_scale=1024, growth_interval=2)])
    scaler = accelerator.scaler
    assert (scaler._enabled, scaler._init_scale, scaler._growth_interval) == (True, 1024.0, 2)
    model = new_model()
    model, optimizer = accelerator.prepare(model, optim.AdamW(model.parameters()))
    scales = []
    for factor in (1.0, 1.0, float("inf"), 1.0):
        accelerator.backward(model(torch.ones(4, 2, 3, 3, device=DEVICE)).square().mean() * factor)
        optimizer.step()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    assert scales == [1024.0, 2048.0, 1024.0, 1024.0], scales


def check_loss_scaling_of_deepspeed():
    """The file says how losses are scaled; two overflows until the scale shrinks."""
    accel.AcceleratorState._reset_state(True)
    scaled = {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2, "hysteresis": 2}
    plugin = accel.DeepSpeedPlugin(hf_ds_config={"zero_optimization": {"stage": 0}, "fp16": scaled, "train_micro_batch_size_per_gpu": 1})
    accelerator = accel.Accelerator(torch_device=DEVICE, mixed_precision="fp16", deepspeed_plugin=plugin)
    model = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=0.0))
    scales = []
    for factor in (1.0, 1.0, float("inf"), float("inf"), 1.0, 1.0):
        accelerator.backward(model(torch.ones(1, 2, device=DEVICE)).sum() * factor)
        scales.append(accelerator.loss_scale)
    assert scales == [16.0, 32.0, 32.0, 16.0, 16.0, 32.0], scales


def main():
    simulated_torch.register()
    for kind, settings in CASES:
        for resume in (through_a_folder, through_a_file_of_torch, through_a_program):
            check(kind, settings, resume)
        for optimizer_first in (False, True):
            check_loaded_on_the_cpu(kind, settings, optimizer_first)
    check_mixed_groups()
    check_moved_model()
    check_loss_scaling()
    check_loss_scaling_of_deepspeed()
    print("equal")


if __name__ == "__main__":
    sys.exit(main())
