"""Random training programs: a model, its data, an optimizer and a schedule with their flags, all from one seed.

A program is plain data. run_programs.py runs it with this library, or with Accelerate where that is installed; the model is
written once, over the names that both have.
"""

import random

ROWS = 12  # of a batch: ranks and micro-batches take equal shares of it
FEATURES = 4

# Flags are taken or left at random. Learning rates are large enough for each step to be seen.
OPTIMIZERS = {
    "SGD": {"momentum": (0.9,), "weight_decay": (0.1,), "maximize": (True,)},
    "Adam": {"weight_decay": (0.1,), "amsgrad": (True,), "betas": ((0.5, 0.7),)},
    "AdamW": {"weight_decay": (0.0, 0.3), "amsgrad": (True,), "betas": ((0.5, 0.7),)},
    "Adagrad": {"weight_decay": (0.1,), "lr_decay": (0.1,), "initial_accumulator_value": (0.5,)},
    "RMSprop": {"weight_decay": (0.1,), "momentum": (0.9,), "centered": (True,), "alpha": (0.5,)},
    "NAdam": {"weight_decay": (0.1,), "momentum_decay": (0.01,)},
    "RAdam": {"weight_decay": (0.1,), "betas": ((0.5, 0.7),)},
    "Adamax": {"weight_decay": (0.1,), "betas": ((0.5, 0.7),)},
}
SCHEDULES = {
    "StepLR": {"step_size": (2, 3), "gamma": (0.5,)},
    "MultiStepLR": {"milestones": ([1, 4],), "gamma": (0.3,)},
    "ExponentialLR": {"gamma": (0.7,)},
    "CosineAnnealingLR": {"T_max": (4, 9), "eta_min": (0.001,)},
    "LinearLR": {"start_factor": (0.25,), "total_iters": (3,)},
    "ConstantLR": {"factor": (0.5,), "total_iters": (2,)},
    "PolynomialLR": {"total_iters": (5,), "power": (2.0,)},
    "OneCycleLR": {"max_lr": (0.2,), "total_steps": (12,), "pct_start": (0.3,), "cycle_momentum": (False,)},
}
REQUIRED = {"step_size", "milestones", "gamma", "T_max", "max_lr", "total_steps", "cycle_momentum"}


def choose_flags(rng, flags):
    return {name: rng.choice(values) for name, values in flags.items() if name in REQUIRED or rng.random() < 0.5}


def make_program(seed):
    """The program of a seed."""
    rng = random.Random(seed)
    steps = rng.randint(5, 8)
    heads = rng.choice((1, 1, 2, 3))
    width = rng.randint(2, 5)
    optimizer = rng.choice(sorted(OPTIMIZERS))
    settings = {"lr": rng.choice((0.02, 0.05, 0.1))} | choose_flags(rng, OPTIMIZERS[optimizer])
    if optimizer == "SGD" and "momentum" in settings and rng.random() < 0.5:
        settings |= rng.choice(({"nesterov": True}, {"dampening": 0.3}))
    schedule = rng.choice((None, *sorted(SCHEDULES)))
    program = {
        "seed": seed,
        "steps": steps,
        "width": width,
        "layers": rng.randint(1, 2),
        "shared": rng.random() < 0.3,  # the last layer of the trunk is applied twice
        "unused": rng.random() < 0.3,  # a parameter that no forward reaches
        "buffer": rng.random() < 0.3,
        "heads": heads,
        "head_of_step": [step * heads // steps if rng.random() < 0.9 else rng.randrange(heads) for step in range(steps)],
        "frozen_from": rng.choice((None, None, rng.randint(0, steps - 1))),  # the first layer's weight
        "groups": rng.random() < 0.3,  # heads have a learning rate of their own
        "optimizer": optimizer,
        "settings": settings,
        "schedule": schedule,
        "schedule_settings": choose_flags(rng, SCHEDULES[schedule]) if schedule else {},
        "schedule_first": rng.random() < 0.2,  # it is stepped before the optimizer
        "clip_norm": rng.choice((None, None, 0.05, 1.0)),
        "clip_value": rng.choice((None, None, 0.01)),
        "set_to_none": rng.random() < 0.8,
        "resume_at": rng.randint(1, steps - 1),
    }
    if schedule == "OneCycleLR":
        program["schedule_first"] = False  # it would be asked for a step behind its end
    return program


def has_idle_parameters(program):
    return program["unused"] or program["heads"] > 1 or program["frozen_from"] is not None


def make_weights(program, shapes):
    """{name: nested lists} for {name: shape}, the same for every library."""
    rng = random.Random(program["seed"] + 1)

    def fill(shape):
        return [fill(shape[1:]) for _ in range(shape[0])] if shape else rng.uniform(-1, 1)
    return {name: fill(shapes[name]) for name in sorted(shapes)}


def make_batch(program, step):
    """Rows and targets of a step, for all ranks together."""
    rng = random.Random(f"{program['seed']} {step}")
    rows = [[rng.uniform(-2, 2) for _ in range(FEATURES)] for _ in range(ROWS)]
    return rows, [[rng.uniform(-1, 1)] for _ in range(ROWS)]
