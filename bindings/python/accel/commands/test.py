"""The command `test`: whether this machine can train."""

import argparse

from . import program


def test_command_parser(subparsers=None):
    """The parser of the command's arguments."""
    if subparsers is None:
        parser = argparse.ArgumentParser(prog="accel test")
    else:
        parser = subparsers.add_parser("test")
        parser.set_defaults(func=test_command)
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
