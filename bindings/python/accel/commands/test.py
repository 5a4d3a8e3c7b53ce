# SPDX-License-Identifier: Apache-2.0
"""The command `test`: whether this machine can train."""

from . import program
from .arguments import parser_of


def test_command_parser(subparsers=None):
    """The parser of the command's arguments."""
    parser = parser_of("test", test_command, subparsers)
    parser.add_argument("--config_file", "--config-file", help="a configuration file; default: that in the cache folder")
    return parser


def test_command(args):
    """Runs the tests; the program shows what works."""
    program.run("test", *(["--config_file", args.config_file] if args.config_file else []))
    print("Test is a success! You are ready for your distributed training!")


def main():
    test_command(test_command_parser().parse_args())


if __name__ == "__main__":
    main()
