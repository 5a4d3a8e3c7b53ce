# SPDX-License-Identifier: Apache-2.0
"""The command `config update`: the file of an older version becomes one of this version."""

import os

from .. import program
from .config_args import default_config_file
from .subcommand_help import SubcommandHelpFormatter

description = "Writes a configuration file anew, with all settings of this version."


def update_config(args):
    """Writes the file anew, and returns its path."""
    path = args.config_file or default_config_file
    if not os.path.exists(path):
        raise ValueError(f"The passed config file located at {path} doesn't exist.")
    program.ask("config", "update", "--config_file", path)
    return path


def update_command_parser(parser, parents):
    """Adds the parser of the command's arguments."""
    parser = parser.add_parser("update", parents=parents, help=description, formatter_class=SubcommandHelpFormatter)
    parser.add_argument("--config_file", "--config-file", help="the file; default: that in the cache folder")
    parser.set_defaults(func=update_config_command)
    return parser


def update_config_command(args):
    """Writes the file anew, and says so."""
    print(f"Successfully updated the configuration file at {update_config(args)}.")
