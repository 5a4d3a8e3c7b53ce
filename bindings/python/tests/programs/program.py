# SPDX-License-Identifier: Apache-2.0
"""Random training programs: a model, its data, an optimizer and a schedule with their flags, all from one seed; and how ranks share one out.

A program is plain data. run_programs.py runs it with this library, or with Accelerate where that is installed; the model is
written once, over the names that both have.
"""

import random

ROWS = 12  # of a batch, of which ranks and micro-batches take shares
FEATURES = 4
TOKENS = 7  # that an embedding knows

# Flags are taken or left at random. Learning rates are large enough for each step to be seen. Not here, for their runs need not agree:
# LOMO and AdaLomo, which update in each backward and so do not accumulate; Muon, which takes matrices only and rounds to bf16 meanwhile,
# so that the last bit of a gradient decides about the third digit of an update.
OPTIMIZERS = {
    "SGD": {"momentum": (0.9,), "weight_decay": (0.1,), "maximize": (True,)},
    "Adam": {"weight_decay": (0.1,), "amsgrad": (True,), "betas": ((0.5, 0.7),)},
    "AdamW": {"weight_decay": (0.0, 0.3), "amsgrad": (True,), "betas": ((0.5, 0.7),)},
    "Adagrad": {"weight_decay": (0.1,), "lr_decay": (0.1,), "initial_accumulator_value": (0.5,)},
    "RMSprop": {"weight_decay": (0.1,), "momentum": (0.9,), "centered": (True,), "alpha": (0.5,)},
    "NAdam": {"weight_decay": (0.1,), "momentum_decay": (0.01,)},
    "RAdam": {"weight_decay": (0.1,), "betas": ((0.5, 0.7),)},
    "Adamax": {"weight_decay": (0.1,), "betas": ((0.5, 0.7),)},
    "Adafactor": {"weight_decay": (0.1,), "d": (2.0,), "maximize": (True,)},
    "AdamW8bit": {"weight_decay": (0.0, 0.3), "betas": ((0.5, 0.7),)},  # so small parameters keep float32 moments
    "AdamWScheduleFree": {"weight_decay": (0.1,), "warmup_steps": (3,), "r": (1.0,)},
    "LAMB": {"weight_decay": (0.0, 0.1), "betas": ((0.5, 0.7),)},
    "Lion": {"weight_decay": (0.1,), "betas": ((0.5, 0.7),)},
    "SGDScheduleFree": {"momentum": (0.5,), "weight_decay": (0.1,), "warmup_steps": (3,)},
}
NOT_IN_TORCH = ("AdamW8bit", "AdamWScheduleFree", "LAMB", "Lion", "SGDScheduleFree")
# Whose update of an element has the size of the learning rate however small the gradient is: what rounding makes of a gradient near 0
# decides about its direction.
WITHOUT_SIZE = ("Lion",)
SMOOTH = ("SGD", "SGDScheduleFree")
SINGLE = ("AdamW8bit",)  # not for float64
WHOLE = ("Adafactor", "LAMB")  # update a parameter as a whole, which sharding refuses
SCHEDULES = {
    "StepLR": {"step_size": (2, 3), "gamma": (0.5,)},
    "MultiStepLR": {"milestones": ([1, 4],), "gamma": (0.3,)},
    "ExponentialLR": {"gamma": (0.7,)},
    "CosineAnnealingLR": {"T_max": (4, 9), "eta_min": (0.001,)},
    "LinearLR": {"start_factor": (0.25,), "total_iters": (3,)},
    "ConstantLR": {"factor": (0.5,), "total_iters": (2,)},
    "PolynomialLR": {"total_iters": (5,), "power": (2.0,)},
    "OneCycleLR": {"max_lr": (0.2,), "total_steps": (12,), "pct_start": (0.3,), "cycle_momentum": (False,)},
    "CosineAnnealingWarmRestarts": {"T_0": (2, 3), "T_mult": (2,), "eta_min": (0.001,)},
    "CyclicLR": {"base_lr": (0.01,), "max_lr": (0.1,), "step_size_up": (2, 3), "mode": ("triangular2",), "cycle_momentum": (False,)},
    "LambdaLR": {"decay": (0.5,)},
    "ReduceLROnPlateau": {"factor": (0.5,), "patience": (0, 1), "threshold": (0.05,), "cooldown": (1,)},
    "ChainedScheduler": {"parts": ([("ConstantLR", {"factor": 0.5, "total_iters": 3}), ("ExponentialLR", {"gamma": 0.8})],)},
    "SequentialLR": {"parts": ([("LinearLR", {"start_factor": 0.25, "total_iters": 2}), ("ExponentialLR", {"gamma": 0.8})],), "milestones": ([2],)},
    "get_constant_schedule_with_warmup": {"num_warmup_steps": (3,)},
    "get_cosine_schedule_with_warmup": {"num_warmup_steps": (2,), "num_training_steps": (9,), "num_cycles": (1.5,)},
    "get_cosine_with_hard_restarts_schedule_with_warmup": {"num_warmup_steps": (2,), "num_training_steps": (9,), "num_cycles": (2,)},
    "get_inverse_sqrt_schedule": {"num_warmup_steps": (2,), "timescale": (4,)},
    "get_linear_schedule_with_warmup": {"num_warmup_steps": (2,), "num_training_steps": (9,)},
}
REQUIRED = {"step_size", "milestones", "gamma", "T_max", "max_lr", "total_steps", "cycle_momentum", "T_0", "base_lr", "step_size_up", "decay",
            "factor", "patience", "parts", "num_warmup_steps", "num_training_steps"}


def choose_flags(rng, flags):
    return {name: rng.choice(values) for name, values in flags.items() if name in REQUIRED or rng.random() < 0.5}


def make_program(seed):
    """The program of a seed."""
    rng = random.Random(seed)
    steps = rng.randint(4, 7)
    heads = rng.choice((1, 1, 2, 3))
    width = rng.randint(2, 5)
    optimizer = rng.choice(sorted(OPTIMIZERS))
    settings = {"lr": rng.choice((0.02, 0.05, 0.1))} | choose_flags(rng, OPTIMIZERS[optimizer])
    if optimizer == "SGD" and "momentum" in settings and rng.random() < 0.5:
        settings |= rng.choice(({"nesterov": True}, {"dampening": 0.3}))
    schedule = rng.choice((None, *sorted(SCHEDULES)))
    precisions = ["float64"] * 3 * (optimizer not in SINGLE) + ["float32"] * (optimizer not in WITHOUT_SIZE) + ["bf16"] * (optimizer in SMOOTH)
    program = {
        "seed": seed,
        "steps": steps,
        "precision": rng.choice(precisions),  # bf16: float32 under mixed precision
        "width": width,
        "layers": rng.randint(1, 2),
        "shared": rng.random() < 0.3,  # the last layer of the trunk is applied twice
        "unused": rng.random() < 0.3,  # a parameter that no forward reaches
        "buffer": rng.random() < 0.3,  # one counts rows, one scales what comes out
        "tied": rng.random() < 0.3,  # the first head's weight is that of another layer, too
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
        "stem": rng.choice((None, None, "conv", "embedding")),  # what comes before the trunk
        "norm": rng.choice((None, None, "LayerNorm", "RMSNorm")) if width > 2 else None,  # of each layer; of two numbers it keeps their signs only
        "last_rows": rng.choice((ROWS, 5, 7)),  # of the last batch
        "leaves_early": rng.random() < 0.5,  # the last rank has no last batch
    }
    if schedule in ("OneCycleLR", "ReduceLROnPlateau"):
        program["schedule_first"] = False  # it would be asked for a step behind its end; it needs the loss of the step
    return program


def has_early_end(program):
    """Whether the last rank may leave before the last batch: it then repeats what it exchanged for the one before."""
    head, frozen_from, steps = program["head_of_step"], program["frozen_from"], program["steps"]
    return program["leaves_early"] and head[-1] == head[-2] and frozen_from != steps - 1 and program["resume_at"] < steps - 1


def make_sharding(program, ranks):
    """How `ranks` processes share a program out: the plugin ("fsdp" or "deepspeed") and its settings, the mesh, the accumulation."""
    rng = random.Random(f"{program['seed']} sharded {ranks}")
    wrapping = rng.choice(({"auto_wrap_policy": "NO_WRAP"}, {"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": rng.choice((1, 10, 20))},
                           {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "transformer_cls_names_to_wrap": rng.choice((["Block"], ["Linear"]))}))
    common = wrapping | {"state_dict_type": rng.choice(("FULL_STATE_DICT", "SHARDED_STATE_DICT")), "limit_all_gathers": rng.random() < 0.5,
                         "activation_checkpointing": rng.random() < 0.3, "cpu_offload": rng.random() < 0.3}
    if rng.random() < 0.2:
        common |= {"offload_optimizer": True, "cpu_offload": False}
    kind = rng.choice(("fsdp1", "fsdp1", "fsdp2", "fsdp2", "deepspeed"))
    if kind == "deepspeed" and (program["clip_value"] is not None or program["schedule_first"] or not program["set_to_none"]):
        kind = "fsdp2"  # it updates in backward() already, and sets gradients to None
    mesh = None
    if kind == "fsdp1":
        settings = common | {
            "fsdp_version": 1, "sharding_strategy": rng.choice(("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")),
            "backward_prefetch": rng.choice(("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")), "forward_prefetch": rng.random() < 0.5,
            "use_orig_params": rng.random() < 0.5, "cpu_ram_efficient_loading": rng.random() < 0.5, "sync_module_states": True}
    elif kind == "fsdp2":
        settings = common | {"fsdp_version": 2, "reshard_after_forward": rng.choice((True, False)), "cpu_ram_efficient_loading": rng.random() < 0.5}
        if settings["activation_checkpointing"] and rng.random() < 0.3:
            settings["activation_checkpointing_offload"] = True
        if ranks == 4 and rng.random() < 0.3:
            settings["reshard_after_forward"] = 2
    else:
        stage = rng.randint(0, 3)
        zero = {"stage": stage, "stage3_param_persistence_threshold": rng.choice((0, 10)), "stage3_gather_16bit_weights_on_model_save": True}
        if stage > 0 and rng.random() < 0.3:
            zero["offload_optimizer"] = {"device": "cpu"}
        settings = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": program["clip_norm"] or 0.0, "zero_optimization": zero}
    if kind != "deepspeed" and ranks == 4 and rng.random() < 0.5:
        mesh = {"dp_replicate_size": 2, "dp_shard_size": 2}
    share = ROWS // ranks
    return {"kind": kind, "settings": settings, "mesh": mesh, "accumulation": rng.choice([1, *(each for each in (2, 3) if share % each == 0)])}


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
    count = program["last_rows"] if step == program["steps"] - 1 else ROWS
    rows = [[rng.uniform(-2, 2) for _ in range(FEATURES)] for _ in range(count)]
    return rows, [[rng.uniform(-1, 1)] for _ in range(count)]
