# SPDX-License-Identifier: Apache-2.0
"""The command `config`: the program asks on the terminal, and writes the file."""

import os
import tempfile

from .. import program
from ..arguments import parser_of
from .config_args import load_config_from_file

description = "Asks how you train, and writes the answers into the configuration file of `accel launch`."


def get_user_input():
    """The configuration that the answers make."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "answers.yaml")
        program.run("config", "--config_file", path)
        return load_config_from_file(path)


get_cluster_input = get_sagemaker_input = get_user_input  # in Accelerate's modules `cluster` and `sagemaker`


def config_command_parser(subparsers=None):
    """The parser of the command's arguments."""
    parser = parser_of("config", config_command, subparsers, description)
    parser.add_argument("--config_file", "--config-file", help="the file to write; default: that in the cache folder")
    return parser


def config_command(args):
    """Asks, and writes the file."""
    program.run("config", *(["--config_file", args.config_file] if args.config_file else []))


def main():
    config_command(config_command_parser().parse_args())


if __name__ == "__main__":
    main()
