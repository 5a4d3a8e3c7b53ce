# SPDX-License-Identifier: Apache-2.0
"""One life of a random training that saves its state: it goes on from the newest checkpoint, and reports each thing that it does.

plan() says what a training is, live() runs one of its lives on the ranks of a job. The first rank reports lines of JSON: ["found", steps, weights]
for each checkpoint that it could load, ["begins", steps, weights], ["at", steps, weights], ["saving", steps], ["saved", steps], ["ends", outcome].
"""

import argparse
import json
import os
import random

import program as programs
import run_programs

BATCHES = 3  # of an epoch
CHECKPOINTS = "checkpoints"
ONE = "state"  # the folder of a training that always saves under one name


def plan(seed, library):
    """How a random program is trained, and when and how it saves."""
    rng = random.Random(f"{seed} lives")
    program = programs.make_program(seed) | {"set_to_none": True}  # checkpoints hold no zeros for parameters that are not trained
    if library == "torch" and program["optimizer"] in programs.NOT_IN_TORCH:
        program |= {"optimizer": "AdamW", "settings": {"lr": 0.05}}
    if program["precision"] == "bf16":
        program["precision"] = "float32"  # a precision is of a job, and the lives have one
    ranks = rng.choice(((1,),) * 6 + ((2,), (2,), (3,), (1, 2, 3)))
    program["buffer"] &= len(ranks) == 1  # it counts the rows of a rank
    sharded = len(ranks) > 1 or ranks[0] > 1
    sharded = sharded and program["optimizer"] not in programs.WHOLE and rng.random() < 0.6
    steps = rng.randint(4, 9)
    settings = {"asynchronous": rng.random() < 0.4, "incremental": rng.random() < 0.3, "durable": rng.random() < 0.3,
                "safe_serialization": rng.random() < 0.8}
    if rng.random() < 0.3 and settings["safe_serialization"]:
        settings["compression_level"] = rng.choice((1, 3))
    accumulation = rng.choice((1, 1, 2, 3))
    return {
        "library": library, "program": program, "ranks": ranks, "sharded": sharded, "steps": steps, "accumulation": accumulation,
        "saves": sorted(rng.sample(range(1, steps + 1), rng.randint(2, min(4, steps)))), "settings": settings,
        "behind_epochs": rng.random() < 0.3,  # a save at the end of an epoch comes after the loop over its batches
        "naming": rng.choice(("automatic", "automatic", "automatic", "replaced")), "total_limit": rng.choice((None, 1, 2)),
        "missing_rows": rng.choice((0, 5)) if len(ranks) == 1 else 0,  # of the last batch, which several ranks fill up
        "noise": len(ranks) == 1 and rng.random() < 0.5,  # numbers are drawn; new ranks would have other ones
        # What is added in another order may differ in its last bits; torch loads a product of its NAdam in another precision.
        "is_exact": len(ranks) == 1 and not (sharded and accumulation > 1) and (library, program["optimizer"]) != ("torch", "NAdam"),
    }


class Progress:
    """The steps so far."""

    def __init__(self):
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


class Life:
    def __init__(self, plan, folder, report):
        self.plan, self.folder, self._report = plan, folder, report
        self.names = names = run_programs.library(plan["library"])
        accelerate, tensors = names[0], names[1]
        program, ranks = plan["program"], int(os.environ["WORLD_SIZE"])
        options = argparse.Namespace(sharded=plan["sharded"], accumulation=plan["accumulation"])
        of_job, accumulation = run_programs.of_job(names, program, options, max(plan["ranks"]))
        of_job.pop("parallelism_config", None)  # for any number of ranks
        self.accelerator = accelerate.Accelerator(
            **of_job, gradient_accumulation_steps=accumulation,
            project_config=accelerate.utils.ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=plan["naming"] == "automatic",
                                                                 total_limit=plan["total_limit"]),
            dataloader_config=accelerate.DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True))
        accelerate.utils.set_seed(program["seed"])
        rng = random.Random(program["seed"] + 2)
        dtype = run_programs.of_precision(tensors, program)
        count = BATCHES * programs.ROWS - plan["missing_rows"]
        rows = [[rng.uniform(-2, 2) for _ in range(programs.FEATURES)] for _ in range(count)]
        data = [tensors.tensor(rows, dtype=dtype), tensors.tensor([[rng.uniform(-1, 1)] for _ in range(count)], dtype=dtype)]
        if plan["library"] == "torch":
            loader = tensors.utils.data.DataLoader(tensors.utils.data.TensorDataset(*data), batch_size=programs.ROWS, shuffle=True)
        else:
            loader = accelerate.data.DataLoader(accelerate.data.TensorDataset(*data), batch_size=programs.ROWS, shuffle=True, seed=program["seed"])
        model, optimizer, schedule = run_programs.make_objects(names, program)
        self.lengths = [len(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        prepared = self.accelerator.prepare(model, optimizer, loader, *([schedule] if schedule else []))
        self.prepared, self.loader = (prepared[0], prepared[1], prepared[3] if schedule else None), prepared[2]
        self.progress, self.unconfirmed, self.ranks = Progress(), None, ranks
        self.accelerator.register_for_checkpointing(self.progress)

    def report(self, *what):
        if self.accelerator.is_main_process:
            self._report(json.dumps(what))

    def weights(self):
        """All of them, on the first rank."""
        return {name: value.tolist() for name, value in self.accelerator.get_state_dict(self.prepared[0]).items()}

    def begin(self, tries_all):
        """From the newest checkpoint, if there is one. With tries_all each folder that is there is loaded before, whole or not."""
        folder = os.path.join(self.folder, CHECKPOINTS) if self.plan["naming"] == "automatic" else self.folder
        there = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        there = self.names[0].utils.broadcast_object_list([there])[0]
        visible = [name for name in there if not name.startswith(".") and name.startswith(("checkpoint_", ONE))]
        for name in there if tries_all else []:
            try:
                self.accelerator.load_state(os.path.join(folder, name))
            except Exception as error:  # whatever the library says of what is not a checkpoint
                self.report("refused", name, name in visible, str(error))
            else:
                self.report("found", self.progress.steps, self.weights())
        if visible:
            self.accelerator.load_state(None if self.plan["naming"] == "automatic" else os.path.join(folder, ONE))
        self.report("begins", self.progress.steps, self.weights(), visible)

    def save(self):
        steps = self.progress.steps
        self.report("saving", steps)
        self.accelerator.save_state(None if self.plan["naming"] == "automatic" else os.path.join(self.folder, ONE), **self.plan["settings"])
        if self.unconfirmed is not None:  # this save has waited for that one
            self.report("saved", self.unconfirmed)
        self.unconfirmed = None
        if self.plan["settings"]["asynchronous"]:
            self.unconfirmed = steps
        else:
            self.report("saved", steps)

    def take_step(self, rows, targets):
        program, accelerator, tensors = self.plan["program"], self.accelerator, self.names[1]
        step = self.progress.steps
        run_programs.freeze(accelerator, program, self.prepared, step)
        with accelerator.accumulate(self.prepared[0]):
            if self.plan["noise"]:
                rows = rows + tensors.rand(*rows.shape, dtype=rows.dtype)
            head = program["head_of_step"][step % program["steps"]]
            loss = run_programs.backward(self.names, accelerator, program, self.prepared, head, rows.tolist(), targets.tolist(), 1 / len(rows))
            run_programs.update(accelerator, program, self.prepared)
        if program["schedule"] == "ReduceLROnPlateau":
            self.prepared[2].step(accelerator.reduce(loss, "mean").item())

    def train(self):
        steps, saves, behind = self.plan["steps"], self.plan["saves"], self.plan["behind_epochs"]
        length = len(self.loader)
        while self.progress.steps < steps:
            for rows, targets in self.loader:
                self.take_step(rows, targets)
                self.progress.steps += 1
                self.report("at", self.progress.steps, self.weights())
                ends = self.progress.steps % length == 0
                if self.progress.steps in saves and not (ends and behind):
                    self.save()
                if self.progress.steps == steps and not ends:
                    break
            if self.progress.steps in saves and behind and self.progress.steps % length == 0:
                self.save()

    def end(self):
        if self.unconfirmed is not None:
            self.accelerator.wait_for_checkpoint()
            self.report("saved", self.unconfirmed)
        optimizer = self.prepared[1]
        outcome = {"weights": self.weights(), "lrs": [group["lr"] for group in optimizer.param_groups],
                   "moments": run_programs.whole_moments(self.names, self.accelerator, optimizer, self.lengths, self.plan["sharded"] and self.ranks > 1)}
        self.report("ends", outcome)
        self.accelerator.free_memory()


def live(plan, folder, tries_all, report):
    life = Life(plan, folder, report)
    life.begin(tries_all)
    life.train()
    life.end()
