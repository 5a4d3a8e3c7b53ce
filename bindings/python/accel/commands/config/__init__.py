# SPDX-License-Identifier: Apache-2.0
"""The command `config`, with `config default` and `config update`."""

import argparse

from .config import config_command_parser
from .config_args import default_config_file, load_config_from_file  # noqa: F401
from .default import default_command_parser
from .update import update_command_parser


def get_config_parser(subparsers=None):
    """The parser of the command and of those below it."""
    parser = config_command_parser(subparsers)
    below = parser.add_subparsers(title="subcommands", dest="subcommand")
    for add in (default_command_parser, update_command_parser):
        add(below, parents=[argparse.ArgumentParser(add_help=False, allow_abbrev=False)])
    return parser


def main():
    from .config import config_command

    args = get_config_parser().parse_args()
    getattr(args, "func", config_command)(args)
