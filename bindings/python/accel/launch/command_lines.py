# SPDX-License-Identifier: Apache-2.0
"""The result of `accel launch` for arguments: the command, its environment, and the settings with their sources."""

import argparse
import functools
import os
import sys

from ..commands import program
from ..state.environment import env_var_path_add, str_to_bool  # noqa: F401
from .launchers import PrepareForLaunch  # noqa: F401

SCRIPT = "training_script"
_PORT = 29500


@functools.cache
def options():
    """The table of the options of `accel launch`: dicts of name, aliases, kind, choices, default, group, help, reason."""
    return program.ask_json("launch", "--list-options")


@functools.cache
def _kinds():
    """The kind of each option. Some with yes and no have texts in Accelerate's parser."""
    return {option["name"]: "flag" if option["kind"] == "yes_or_no" and isinstance(option.get("default"), bool) else option["kind"]
            for option in options()}


def convert(name, value):
    """The text of an option as Accelerate's parser has it."""
    kind = _kinds().get(name)
    if not isinstance(value, str) or kind not in ("flag", "integer", "number"):
        return value
    return str_to_bool(value, to_bool=True) if kind == "flag" else int(value) if kind == "integer" else float(value)


def arguments_of(args):
    """The command line that these parsed arguments came from: options that are not as the parser has them by default, then the script."""
    given, words = vars(args), []
    for option in options():
        name, kind, value = option["name"], option["kind"], given.get(option["name"])
        if value is None or value == convert(name, option.get("default")) and name not in given.get("nondefault", ()):
            continue
        if kind == "flag":
            words += [f"--{name}"] if value else []
        elif isinstance(value, (list, tuple)) and kind != "list":
            words.append(f"--{name}={','.join(map(str, value))}")
        elif isinstance(value, (list, tuple)):
            words += [f"--{name}={entry}" for entry in value]
        else:
            words.append(f"--{name}={str(value).lower() if isinstance(value, bool) else value}")
    return [*words, "--", str(given.get(SCRIPT) or sys.executable), *map(str, given.get(f"{SCRIPT}_args") or ())]


def plan(args, uses_file=True):
    """The commands that would be started: `accel launch --dry-run --json`."""
    args = argparse.Namespace(**{**vars(args), "dry_run": False, "json": False})
    no_file = {} if uses_file else {"HF_HOME": os.devnull, "ACCELERATE_CONFIG_FILE": ""}
    if not uses_file:
        args.config_file = None
    return program.ask_json("launch", "--dry-run", "--json", *arguments_of(args), **no_file)


def _environment(planned):
    return {**os.environ, **planned["environment"]}


def prepare_simple_launcher_cmd_env(args):
    """The command of one process, and its environment. The arguments are those of _validate_launch_command()."""
    planned = plan(args, uses_file=False)
    command = planned["command"]
    python = sys.executable if command[0] == "python3" else command[0]
    return [python, *command[1:]], _environment(planned)


prepare_deepspeed_cmd_env = prepare_simple_launcher_cmd_env  # sharded as DeepSpeed's settings say


def prepare_multi_gpu_env(args):
    """The environment of several processes. `args` gets the place where they meet, as torchrun names it."""
    planned = plan(args, uses_file=False)
    environment = _environment(planned)
    args.main_process_port = int(environment.get("MASTER_PORT") or _free_port(args))
    args.nproc_per_node = str(len(planned["ranks"]))
    if (args.num_machines or 1) > 1:
        args.nnodes, args.node_rank = str(args.num_machines), int(args.machine_rank)
        if not getattr(args, "same_network", False):
            args.rdzv_endpoint = f"{args.main_process_ip}:{args.main_process_port}"
            return environment
        args.master_addr = str(args.main_process_ip)
    args.master_port = str(args.main_process_port)
    return environment


def _free_port(args):
    from ..state.environment import get_free_port

    return _PORT if args.main_process_port is None else get_free_port()


def prepare_extend_env_parallelism_config(args, current_env):
    """The environment with the axes of the mesh."""
    planned = plan(args, uses_file=False)
    return {**current_env, **{name: value for name, value in planned["environment"].items() if name.startswith("PARALLELISM_CONFIG_")}}


def setup_fp8_env(args, current_env):
    """The environment with the recipe of fp8."""
    planned = plan(argparse.Namespace(**{**vars(args), "mixed_precision": "fp8"}), uses_file=False)
    return {**current_env, **{name: value for name, value in planned["environment"].items() if name.startswith("ACCELERATE_FP8_")}}


def _filter_args(args, parser, default_args=()):
    """The arguments that another parser knows, with its defaults for the rest."""
    known, _ = parser.parse_known_args(default_args)
    for name, value in vars(args).items():
        if name in vars(known):
            setattr(known, name, value)
    return known


def _convert_nargs_to_dict(nargs):
    """{"epochs": 3} of ["--epochs", "3"], as SageMaker takes the arguments of a script: each name with one value."""
    result = {}
    for place in range(0, len(nargs), 2):
        name, value = nargs[place], nargs[place + 1] if place + 1 < len(nargs) else None
        if not name.startswith("-") or value is None or value.startswith("-"):
            raise ValueError(f"{name}: expected a name with a value, because SageMaker doesn't support flags without one, like store_true")
        result[name.lstrip("-").replace("-", "_")] = _typed(value)
    return result


def _typed(word):
    if word in ("True", "False"):
        return word == "True"
    try:
        number = float(word)
    except ValueError:
        return word
    return int(number) if number.is_integer() else number
