# SPDX-License-Identifier: Apache-2.0
"""The command `launch`: the parser of its arguments, which have Accelerate's names and defaults, and what they mean, as the program says."""

import argparse
import functools
import os
import re
import subprocess
import sys

from ..compat.missing import stand_in
from ..launch.command_lines import SCRIPT, arguments_of, convert, options, plan
from . import program
from .arguments import CustomArgumentParser, parser_of

FORMAT = "%(message)s"
# Headings of the help, by the options that switch a group on.
options_to_group = {"multi_gpu": "Distributed GPUs", "tpu": "TPU", "use_deepspeed": "DeepSpeed Arguments", "use_fsdp": "FSDP Arguments",
                    "use_megatron_lm": "Megatron-LM Arguments", "fp8_backend": "FP8 Arguments"}
tpu_launcher, tpu_pod_launcher = stand_in("prepare_tpu"), stand_in("prepare_tpu")
sagemaker_launcher = stand_in("prepare_sagemager_args_inputs")


def clean_option(option):
    """The group's part of the name of an option."""
    for prefix in ("--fsdp_", "--megatron_lm_", "--fp8_", "--deepspeed_"):
        if option.startswith(prefix):
            return option.removeprefix(prefix)
    return option.removeprefix("--")


class CustomHelpFormatter(argparse.HelpFormatter):
    """Argparse's own."""


def launch_command_parser(subparsers=None):
    """The parser of `accel launch`, from the table that the program prints."""
    description = "Starts a script in several processes. Names of options can be written with -, too: --num-processes."
    parser = parser_of("launch", launch_command, subparsers, description, CustomArgumentParser, allow_abbrev=False, add_help=False)
    parser.add_argument("-h", "--help", action="help", help="Show this help message and exit.")
    groups = {}
    for option in options():
        heading = option.get("group") or "Options"
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        _add(groups[heading], option)
    parser.add_argument(SCRIPT, type=str, help="The script, module or program to start, and its arguments.")
    parser.add_argument(f"{SCRIPT}_args", nargs=argparse.REMAINDER, help="Arguments of the script.")
    return parser


def _add(group, option):
    names = [f"--{option['name']}", *(f"-{name}" if len(name) == 1 else f"--{name}" for name in option.get("aliases") or ())]
    text = re.sub(r"--[a-z]+(-[a-z]+)+", lambda name: "--" + name[0][2:].replace("-", "_"), option.get("reason") or option.get("help") or "")
    settings = {"dest": option["name"], "default": option.get("default"), "help": text.replace("%", "%%")}
    if option["kind"] == "flag":
        group.add_argument(*names, action="store_true", **settings)
    else:
        if option["kind"] == "list":
            settings["nargs"] = "+"
        group.add_argument(*names, type=functools.partial(_value, option["name"]), choices=option["choices"], metavar=option["name"].upper(), **settings)


def _value(name, text):
    try:
        return convert(name, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _validate_launch_command(args):
    """Checks the arguments with the configuration file, whose settings they get where the command line has none. Returns them, the
    configuration or None, and whether the precision is that of the file."""
    from .config.config_args import default_config_file, load_config_from_file

    settings = plan(args)["settings"]
    path = getattr(args, "config_file", None)
    uses_default = path is None and not getattr(args, "cpu", False) and os.path.isfile(default_config_file)
    defaults = load_config_from_file(path) if path is not None or uses_default else None
    for name, setting in settings.items():
        if hasattr(args, name) and setting["value"] is not None:
            setattr(args, name, convert(name, setting["value"]))
    source = settings.get("mixed_precision", {}).get("source", "default")
    return args, defaults, ":" in source


def launch_command(args):
    """Runs `accel launch` with these arguments, and waits."""
    command = [program.find_program(), "launch", *arguments_of(args)]
    done = subprocess.run(command, check=False)
    if done.returncode and getattr(args, "quiet", False):
        sys.exit(1)
    if done.returncode == 2:
        plan(args)  # says as an error what is wrong
    if done.returncode:
        raise subprocess.CalledProcessError(returncode=done.returncode, cmd=command)


simple_launcher = multi_gpu_launcher = deepspeed_launcher = launch_command


def main():
    launch_command(launch_command_parser().parse_args())


if __name__ == "__main__":
    main()
