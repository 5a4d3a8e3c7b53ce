#!/usr/bin/env python3
"""Runs random programs on the ranks of a job, and writes what came out of them as JSON.

usage: run_programs.py [--reference] [--accumulation N] [--resume] --first SEED --count N --out FILE

With --reference by Accelerate and torch, else by this library. With --resume each program is saved in its middle, and
goes on with new objects that load the state. Rank 0 writes {seed: {"losses", "lrs", "parameters", "buffers"}}.
"""

import argparse
import json
import os
import sys
import tempfile

import program as programs


def library(reference):
    """The names that a program uses, of one of the two."""
    if reference:
        import accelerate
        import torch
        from torch import nn, optim
        torch.set_num_threads(1)
        return accelerate, torch, nn, optim, optim.lr_scheduler
    import accel
    from accel import lr_scheduler, nn, optim
    return accel, accel, nn, optim, lr_scheduler


def of_precision(tensors, program):
    """The dtype of parameters and data."""
    return tensors.float64 if program["precision"] == "float64" else tensors.float32


def make_model(names, program):
    _, tensors, nn, _, _ = names
    dtype = of_precision(tensors, program)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            width = program["width"]
            sizes = [programs.FEATURES] + [width] * program["layers"]
            if program["shared"]:
                sizes.append(width)
            self.trunk = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])
            self.heads = nn.ModuleList([nn.Linear(width, 1) for _ in range(program["heads"])])
            if program["unused"]:
                self.unused = nn.Linear(width, 2)
            if program["tied"]:
                self.twin = nn.Linear(width, 1)
                self.twin.weight = self.heads[0].weight
            if program["buffer"]:
                self.register_buffer("seen", tensors.zeros(1, dtype=dtype))
                self.register_buffer("scale", tensors.ones(1, dtype=dtype))

        def forward(self, rows, head):
            for layer in self.trunk:
                rows = layer(rows).tanh()
            if program["shared"]:
                rows = self.trunk[-1](rows).tanh()
            outputs = self.heads[head](rows)
            if program["tied"]:
                outputs = outputs + self.twin(rows * rows)
            if program["buffer"]:
                self.seen.add_(rows.shape[0])
                outputs = outputs * self.scale
            return outputs

    model = Net().to(dtype)
    shapes = {name: list(parameter.shape) for name, parameter in model.named_parameters()}
    weights = {name: tensors.tensor(values, dtype=dtype) for name, values in programs.make_weights(program, shapes).items()}
    if program["tied"]:
        weights["twin.weight"] = weights["heads.0.weight"]
    if program["buffer"]:
        weights |= {"seen": tensors.zeros(1, dtype=dtype), "scale": tensors.tensor([1.25], dtype=dtype)}
    model.load_state_dict(weights)
    return model


def make_objects(names, program):
    """Model, optimizer and schedule (or None), as they begin."""
    _, _, _, optim, lr_scheduler = names
    model = make_model(names, program)
    parameters = list(model.parameters())
    if program["groups"]:
        heads = list(model.heads.parameters())
        rest = list(model.trunk.parameters()) + (list(model.unused.parameters()) if program["unused"] else [])
        rest += [model.twin.bias] if program["tied"] else []
        parameters = [{"params": rest}, {"params": heads, "lr": program["settings"]["lr"] / 2}]
    optimizer = getattr(optim, program["optimizer"])(parameters, **program["settings"])
    schedule = program["schedule"] and make_schedule(lr_scheduler, optimizer, program["schedule"], program["schedule_settings"])
    return model, optimizer, schedule


def make_schedule(lr_scheduler, optimizer, name, settings):
    settings = dict(settings)
    if name.startswith("get_") and not hasattr(lr_scheduler, name):  # torch has not what transformers has
        import transformers
        return getattr(transformers, name)(optimizer, **settings)
    if "decay" in settings:
        decay = settings.pop("decay")
        settings["lr_lambda"] = lambda step: 1 / (1 + decay * step)
    if "parts" in settings:
        parts = [make_schedule(lr_scheduler, optimizer, part, its_settings) for part, its_settings in settings.pop("parts")]
        return (lr_scheduler.ChainedScheduler(parts) if name == "ChainedScheduler"
                else lr_scheduler.SequentialLR(optimizer, parts, **settings))
    return getattr(lr_scheduler, name)(optimizer, **settings)


def train(names, accelerator, program, prepared, steps, outcome, accumulation):
    _, tensors, _, _, _ = names
    model, optimizer, schedule = prepared
    plain = accelerator.unwrap_model(model)
    dtype, by_metric = of_precision(tensors, program), program["schedule"] == "ReduceLROnPlateau"
    share = programs.ROWS // accelerator.num_processes
    each = share // accumulation
    for step in steps:
        if program["frozen_from"] is not None and step >= program["frozen_from"]:
            plain.trunk[0].weight.requires_grad = False
        rows, targets = programs.make_batch(program, step)
        total = 0.0
        for part in range(accumulation):
            begin = accelerator.process_index * share + part * each
            given, wanted = (tensors.tensor(part[begin:begin + each], dtype=dtype) for part in (rows, targets))
            with accelerator.accumulate(model):
                difference = model(given, program["head_of_step"][step]) - wanted
                loss = (difference * difference).mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    if program["clip_norm"] is not None:
                        accelerator.clip_grad_norm_(model.parameters(), program["clip_norm"])
                    if program["clip_value"] is not None:
                        accelerator.clip_grad_value_(model.parameters(), program["clip_value"])
                if schedule and program["schedule_first"]:
                    schedule.step()
                optimizer.step()
                if schedule and not program["schedule_first"] and not by_metric:
                    schedule.step()
                optimizer.zero_grad(set_to_none=program["set_to_none"])
            total += accelerator.reduce(loss.detach(), "mean").item() / accumulation
        if by_metric:
            schedule.step(total)
        outcome["losses"].append(total)
        outcome["lrs"].append([group["lr"] for group in optimizer.param_groups])


def mixed_precision_of(program):
    return "bf16" if program["precision"] == "bf16" else "no"


def run(names, program, options):
    accelerate = names[0]
    from_library = {} if options.reference else {"cpu": True}
    unused = accelerate.DistributedDataParallelKwargs(find_unused_parameters=programs.has_idle_parameters(program))
    if options.reference:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=False)
        accelerate.state.GradientState._reset_state()

    def begin():
        accelerator = accelerate.Accelerator(
            gradient_accumulation_steps=options.accumulation, kwargs_handlers=[unused], **from_library, mixed_precision=mixed_precision_of(program),
            dataloader_config=accelerate.DataLoaderConfiguration(split_batches=True))
        model, optimizer, schedule = make_objects(names, program)
        if schedule:
            return accelerator, accelerator.prepare(model, optimizer, schedule)
        return accelerator, (*accelerator.prepare(model, optimizer), None)

    outcome = {"losses": [], "lrs": []}
    accelerator, prepared = begin()
    steps = range(program["steps"])
    if options.resume:
        with tempfile.TemporaryDirectory() as own:
            folder = accelerate.utils.broadcast_object_list([own])[0]
            train(names, accelerator, program, prepared, steps[:program["resume_at"]], outcome, options.accumulation)
            accelerator.save_state(os.path.join(folder, "state"))
            accelerator.free_memory()
            accelerator, prepared = begin()
            accelerator.load_state(os.path.join(folder, "state"))
            train(names, accelerator, program, prepared, steps[program["resume_at"]:], outcome, options.accumulation)
            accelerator.wait_for_everyone()
    else:
        train(names, accelerator, program, prepared, steps, outcome, options.accumulation)
    trained = accelerator.unwrap_model(prepared[0])
    outcome["parameters"] = {name: parameter.tolist() for name, parameter in trained.named_parameters()}
    outcome["buffers"] = {name: buffer.tolist() for name, buffer in trained.named_buffers()}
    if program["buffer"]:
        outcome["buffers"]["seen"][0] *= accelerator.num_processes  # it counts the rows of rank 0
    accelerator.free_memory()
    return outcome, accelerator.is_main_process


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    names = library(options.reference)
    outcomes = {}
    is_main = False
    made = {seed: programs.make_program(seed) for seed in range(options.first, options.first + options.count)}
    before = "no"
    for seed in sorted(made, key=lambda seed: mixed_precision_of(made[seed]) != before):  # each precision is a job of its own
        if options.reference and made[seed]["optimizer"] in programs.NOT_IN_TORCH:
            continue
        if mixed_precision_of(made[seed]) != before:
            before = mixed_precision_of(made[seed])
            names[0].state.AcceleratorState._reset_state()
        outcomes[seed], is_main = run(names, made[seed], options)
    if is_main:
        with open(options.out, "w") as file:
            json.dump(outcomes, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
