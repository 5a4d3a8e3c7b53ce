# SPDX-License-Identifier: Apache-2.0
"""The command `to-fsdp2`: the program makes a configuration of sharding of version 2 from one of version 1."""

import json
import logging
import os
import pathlib
import tempfile

from ..compat.names import resolver
from . import program
from .arguments import parser_of

_logger = logging.getLogger(__name__)

description = "Converts a configuration file of sharded training from FSDP version 1 to 2."


def _convert(config_file, output_file, *options):
    """Runs the command; what it says of settings that are left out is logged."""
    notes = program.ask_for_notes("to-fsdp2", "--config_file", str(config_file), "--output_file", str(output_file), *options)
    for line in notes.splitlines():
        _logger.warning("%s", line.removeprefix("accel: "))


def convert_config_to_fsdp2(config):
    """The configuration with `fsdp_config` of version 2; as it was if there is none, or if it is of version 2 already."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = os.path.join(folder, "given.json"), os.path.join(folder, "made.json")
        pathlib.Path(given).write_text(json.dumps(config), encoding="utf-8")
        _convert(given, made)
        converted = json.loads(pathlib.Path(made).read_text(encoding="utf-8"))
    if converted != config:
        config["fsdp_config"] = converted["fsdp_config"]
    return config


def load_config(config_file):
    """The content of a YAML file, which the package pyyaml reads."""
    import yaml

    with open(config_file, encoding="utf-8") as file:
        config = yaml.safe_load(file)
    if not config:
        raise ValueError(f"Config file is empty: {config_file}; expected settings as the questionnaire of Accelerate writes them")
    return config


def to_fsdp2_command_parser(subparsers=None):
    """The parser of the command's arguments; with `subparsers` one of a larger program."""
    parser = parser_of("to-fsdp2", to_fsdp2_command, subparsers, description)
    parser.add_argument("--config_file", "--config-file", required=True, help="the file to convert")
    parser.add_argument("--overwrite", action="store_true", help="a file that is there is overwritten: the output file, or that of the input")
    parser.add_argument("--output_file", "--output-file", help="the file of the result; the input with --overwrite")
    return parser


def to_fsdp2_command(args):
    """Converts the file that the arguments name."""
    if not pathlib.Path(args.config_file).exists():
        raise FileNotFoundError(f"Config file {args.config_file} not found")
    if not args.overwrite and args.output_file is None:
        raise ValueError("If --overwrite is not set, --output_file must be provided")
    if not args.overwrite and pathlib.Path(args.output_file).exists():
        raise FileExistsError(f"Output file {args.output_file} already exists and --overwrite is not set")
    _convert(args.config_file, args.output_file or args.config_file, *(["--overwrite"] if args.overwrite else []))


def main():
    to_fsdp2_command(to_fsdp2_command_parser().parse_args())


if __name__ == "__main__":
    main()

__getattr__ = resolver(__name__)
