#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs random programs on the ranks of a job, and writes what came out of them as JSON.

usage: run_programs.py [--with LIBRARY] [--accumulation N] [--resume] [--sharded] --first SEED --count N --out FILE

With this library and its own models ("accel"), with this library and torch's ("torch"), or with Accelerate and torch ("reference"). With
--resume each program is saved in its middle, and goes on with new objects that load the state. With --sharded the ranks share its model
out, each program in another way. Rank 0 writes {seed: {"losses", "lrs", "parameters", "buffers", "moments"}}.
"""

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile

import program as programs


def library(name):
    """The names that a program uses: accelerate's, tensors, nn, optim, lr_scheduler."""
    if name == "accel":
        import accel
        from accel import lr_scheduler, nn, optim
        return accel, accel, nn, optim, lr_scheduler
    import torch
    from torch import nn, optim
    torch.set_num_threads(1)
    if name == "torch":
        import accel as accelerate
    else:
        import accelerate
    return accelerate, torch, nn, optim, optim.lr_scheduler


def is_accel(names):
    return names[0].__name__ == "accel"


def of_precision(tensors, program):
    """The dtype of parameters and data."""
    return tensors.float64 if program["precision"] == "float64" else tensors.float32


def make_model(names, program):
    _, tensors, nn, _, _ = names
    dtype = of_precision(tensors, program)

    class Block(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.linear = nn.Linear(inputs, outputs)
            if program["norm"]:
                self.norm = getattr(nn, program["norm"])(outputs, eps=0.1)

        def forward(self, rows):
            rows = self.linear(rows)
            return (self.norm(rows) if program["norm"] else rows).tanh()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            width = program["width"]
            sizes = [programs.FEATURES] + [width] * program["layers"]
            if program["shared"]:
                sizes.append(width)
            if program["stem"] == "conv":
                self.stem = nn.Conv2d(1, programs.FEATURES, 2)
            elif program["stem"] == "embedding":
                self.stem = nn.Embedding(programs.TOKENS, programs.FEATURES)
            self.trunk = nn.ModuleList([Block(a, b) for a, b in zip(sizes, sizes[1:])])
            self.heads = nn.ModuleList([nn.Linear(width, 1) for _ in range(program["heads"])])
            if program["unused"]:
                self.unused = nn.Linear(width, 2)
            if program["tied"]:
                self.twin = nn.Linear(width, 1)
                self.twin.weight = self.heads[0].weight
            if program["buffer"]:
                self.register_buffer("seen", tensors.zeros(1, dtype=dtype))
                self.register_buffer("scale", tensors.ones(1, dtype=dtype))

        def forward(self, rows, tokens, head):
            count = rows.shape[0]
            if program["stem"] == "conv":
                rows = self.stem(rows.reshape(count, 1, 2, 2)).reshape(count, programs.FEATURES)
            elif program["stem"] == "embedding":
                rows = rows + self.stem(tokens)
            for layer in self.trunk:
                rows = layer(rows)
            if program["shared"]:
                rows = self.trunk[-1](rows)
            outputs = self.heads[head](rows)
            if program["tied"]:
                outputs = outputs + self.twin(rows * rows)
            if program["buffer"]:
                self.seen.add_(count)
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
        named = list(model.named_parameters())
        parameters = [{"params": [parameter for name, parameter in named if not name.startswith("heads.")]},
                      {"params": [parameter for name, parameter in named if name.startswith("heads.")], "lr": program["settings"]["lr"] / 2}]
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


def backward(names, accelerator, program, prepared, head, rows, targets, scale):
    """The gradients of the sum of squares, times `scale`. The loss."""
    _, tensors, _, _, _ = names
    dtype = of_precision(tensors, program)
    given, wanted = tensors.tensor(rows, dtype=dtype).reshape(-1, programs.FEATURES), tensors.tensor(targets, dtype=dtype).reshape(-1, 1)
    tokens = tensors.tensor([int(abs(row[0]) * 3) % programs.TOKENS for row in rows], dtype=tensors.int64)
    difference = prepared[0](given, tokens, head) - wanted
    loss = (difference * difference).sum() * scale
    accelerator.backward(loss)
    return loss.detach()


def update(accelerator, program, prepared):
    """What follows a backward."""
    model, optimizer, schedule = prepared
    by_metric = program["schedule"] == "ReduceLROnPlateau"
    if accelerator.sync_gradients:
        if program["clip_norm"] is not None and getattr(accelerator.state, "deepspeed_plugin", None) is None:  # it clips by itself
            accelerator.clip_grad_norm_(model.parameters(), program["clip_norm"])
        if program["clip_value"] is not None:
            accelerator.clip_grad_value_(model.parameters(), program["clip_value"])
    if schedule and program["schedule_first"]:
        schedule.step()
    optimizer.step()
    if schedule and not program["schedule_first"] and not by_metric:
        schedule.step()
    optimizer.zero_grad(set_to_none=program["set_to_none"])


def freeze(accelerator, program, prepared, step):
    if program["frozen_from"] is not None and step >= program["frozen_from"]:
        accelerator.unwrap_model(prepared[0]).trunk[0].linear.weight.requires_grad = False


def train(names, accelerator, program, prepared, steps, outcome, accumulation):
    """The gradient of a step is that of the mean over its rows, whatever shares the ranks have. The last rank may leave before the last one."""
    _, tensors, _, _, _ = names
    _, optimizer, schedule = prepared
    rank, ranks = accelerator.process_index, accelerator.num_processes
    leaves = ranks > 1 and programs.has_early_end(program) and steps[-1] == program["steps"] - 1

    def take(step, those_there):
        """The part that this rank's rows have in the loss."""
        freeze(accelerator, program, prepared, step)
        rows, targets = programs.make_batch(program, step)
        pieces = those_there * accumulation
        total = 0.0
        for part in range(rank * accumulation, (rank + 1) * accumulation):
            begin, end = part * len(rows) // pieces, (part + 1) * len(rows) // pieces
            with accelerator.accumulate(prepared[0]):
                loss = backward(names, accelerator, program, prepared, program["head_of_step"][step], rows[begin:end], targets[begin:end],
                                ranks * accumulation / len(rows))
                update(accelerator, program, prepared)
            total += loss.item() / accumulation
            outcome["rows"] += end - begin
        return total

    def finish(total):
        total = accelerator.reduce(tensors.tensor(total, dtype=tensors.float64), "mean").item() if ranks > 1 else total
        if program["schedule"] == "ReduceLROnPlateau":
            schedule.step(total)
        outcome["losses"].append(total)
        outcome["lrs"].append([group["lr"] for group in optimizer.param_groups])

    with accelerator.join_uneven_inputs([prepared[0]]) if leaves else contextlib.nullcontext():
        for step in steps[:-1] if leaves else steps:
            finish(take(step, ranks))
        total = take(steps[-1], ranks - 1) if leaves and rank < ranks - 1 else 0.0
    if leaves:
        finish(total)


def mixed_precision_of(program):
    return "bf16" if program["precision"] == "bf16" else "no"


def of_job(names, program, options, ranks):
    """(settings of the Accelerator, accumulation)"""
    accelerate = names[0]
    settings = {"cpu": True} if is_accel(names) else {}
    if not options.sharded:
        unused = accelerate.DistributedDataParallelKwargs(find_unused_parameters=programs.has_idle_parameters(program))
        return settings | {"kwargs_handlers": [unused]}, options.accumulation or 1
    sharding = programs.make_sharding(program, ranks)
    accumulation = options.accumulation or sharding["accumulation"]
    if sharding["kind"] == "deepspeed":
        config = {"gradient_accumulation_steps": accumulation, "bf16": {"enabled": program["precision"] == "bf16"}} | sharding["settings"]
        settings["deepspeed_plugin"] = accelerate.DeepSpeedPlugin(hf_ds_config=config)
    else:
        settings["fsdp_plugin"] = accelerate.FullyShardedDataParallelPlugin(**sharding["settings"])
    if sharding["mesh"]:
        settings["parallelism_config"] = accelerate.ParallelismConfig(**sharding["mesh"])
    return settings, accumulation


def whole_moments(names, accelerator, optimizer, lengths, is_sharded):
    """The states of an optimizer by the number of the parameter. Of a sharded one each rank has all rows, or a part of them."""
    own = {str(number): {key: value.tolist() if hasattr(value, "tolist") else value for key, value in state.items()}
           for number, state in optimizer.state_dict()["state"].items()}
    own = {number: state for number, state in own.items() if state.get("step") != 0}  # some begin with states of all parameters
    everyone = [own] if accelerator.num_processes == 1 else names[0].utils.gather_object([own])
    if not is_sharded:
        if any(states != own for states in everyone):
            raise AssertionError(f"moments differ between ranks: {everyone}")
        return own
    whole = {}
    for number in sorted({number for states in everyone for number in states}):
        parts = [states[number] for states in everyone if number in states]
        whole[number] = {}
        for key in parts[0]:
            values = [part[key] for part in parts]
            if isinstance(values[0], list):
                rows, length = [row for value in values for row in value], lengths[int(number)]
                values = [rows[begin:begin + length] for begin in range(0, len(rows), length)]
            # A product of torch's NAdam is in float32 on some ranks.
            if any(value != values[0] and (isinstance(value, list) or not math.isclose(value, values[0], rel_tol=1e-6)) for value in values):
                raise AssertionError(f"{key} of parameter {number} differs between ranks: {values}")
            whole[number][key] = values[0]
    return whole


def run(names, program, options, ranks):
    accelerate = names[0]
    if not is_accel(names):
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=False)
        accelerate.state.GradientState._reset_state()

    def begin():
        settings, accumulation = of_job(names, program, options, ranks)
        accelerator = accelerate.Accelerator(
            gradient_accumulation_steps=accumulation, **settings, mixed_precision=mixed_precision_of(program),
            dataloader_config=accelerate.DataLoaderConfiguration(split_batches=True))
        model, optimizer, schedule = make_objects(names, program)
        lengths = [len(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        prepared = accelerator.prepare(model, optimizer, schedule) if schedule else (*accelerator.prepare(model, optimizer), None)
        return accelerator, prepared, accumulation, lengths

    outcome = {"losses": [], "lrs": [], "rows": 0}
    accelerator, prepared, accumulation, lengths = begin()
    steps = range(program["steps"])
    if options.resume:
        with tempfile.TemporaryDirectory() as own:
            folder = accelerate.utils.broadcast_object_list([own])[0]
            train(names, accelerator, program, prepared, steps[:program["resume_at"]], outcome, accumulation)
            accelerator.save_state(os.path.join(folder, "state"))
            accelerator.free_memory()
            if options.sharded:  # a plugin is one of the whole state
                accelerate.state.AcceleratorState._reset_state()
            accelerator, prepared, accumulation, lengths = begin()
            accelerator.load_state(os.path.join(folder, "state"))
            train(names, accelerator, program, prepared, steps[program["resume_at"]:], outcome, accumulation)
            accelerator.wait_for_everyone()
    else:
        train(names, accelerator, program, prepared, steps, outcome, accumulation)
    trained = accelerator.unwrap_model(prepared[0])
    weights = accelerator.get_state_dict(prepared[0])
    if accelerator.is_main_process:
        outcome["parameters"] = {name: weights[name].tolist() for name, _ in trained.named_parameters()}
        outcome["buffers"] = {name: weights[name].tolist() for name, _ in trained.named_buffers()}
        if program["buffer"]:
            outcome["buffers"]["seen"][0] /= outcome["rows"]  # of this rank
            if options.sharded and programs.make_sharding(program, ranks)["settings"].get("activation_checkpointing"):
                outcome["buffers"]["seen"] = [1.0]  # they are counted again when the forward is
    outcome["moments"] = whole_moments(names, accelerator, prepared[1], lengths, options.sharded)
    accelerator.free_memory()
    return outcome, accelerator.is_main_process


def can_run(program, options):
    return ((options.library == "accel" or program["optimizer"] not in programs.NOT_IN_TORCH)
            and not (options.sharded and program["optimizer"] in programs.WHOLE))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--with", dest="library", choices=("accel", "torch", "reference"), default="accel")
    parser.add_argument("--accumulation", type=int, default=0, help="0: 1, or as a sharded program says")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    names = library(options.library)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    outcomes = {}
    is_main = False
    made = {seed: programs.make_program(seed) for seed in range(options.first, options.first + options.count)}
    made = {seed: program for seed, program in made.items() if can_run(program, options)}
    before = "no"
    for seed in sorted(made, key=lambda seed: mixed_precision_of(made[seed]) != before):  # each precision is a job of its own
        if mixed_precision_of(made[seed]) != before or options.sharded:
            before = mixed_precision_of(made[seed])
            names[0].state.AcceleratorState._reset_state()
        try:
            outcomes[seed], is_main = run(names, made[seed], options, ranks)
        except Exception as error:
            error.add_note(f"program {seed}: {made[seed]}" + (f", sharded as {programs.make_sharding(made[seed], ranks)}" if options.sharded else ""))
            raise
    if is_main:
        with open(options.out, "w") as file:
            json.dump(outcomes, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
