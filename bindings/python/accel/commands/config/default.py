# SPDX-License-Identifier: Apache-2.0
"""The command `config default`: a configuration for this machine, without questions."""

import pathlib

from .. import program
from .config_args import default_json_config_file
from .subcommand_help import SubcommandHelpFormatter

description = "Writes a configuration for this machine without questions."


def write_basic_config(mixed_precision="no", save_location=default_json_config_file):
    """Writes a configuration for the devices of this machine; returns its path, or False if the file is there already."""
    path = pathlib.Path(save_location)
    if path.exists():
        print(f"Configuration already exists at {save_location}, will not override. Run `accel config`, or pass a different `save_location`.")
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    program.ask("config", "default", "--mixed_precision", mixed_precision.lower(), "--config_file", str(path))
    return path


def default_command_parser(parser, parents):
    """Adds the parser of the command's arguments."""
    parser = parser.add_parser("default", parents=parents, help=description, formatter_class=SubcommandHelpFormatter)
    parser.add_argument("--config_file", "--config-file", default=default_json_config_file, dest="save_location", help="the file to write")
    parser.add_argument("--mixed_precision", "--mixed-precision", choices=["no", "fp16", "bf16", "fp8"], default="no", help="of the training")
    parser.set_defaults(func=default_config_command)
    return parser


def default_config_command(args):
    """Writes the file, and says where."""
    path = write_basic_config(args.mixed_precision, args.save_location)
    if path:
        print(f"accelerate configuration saved at {path}")
