# SPDX-License-Identifier: Apache-2.0
"""The command `tpu-config`, which the program refuses: the engine has no TPUs. With --debug it shows what would be run."""

from . import program
from .arguments import parser_of

_VALUES = {"config_file": "a configuration file with the rest", "tpu_name": "of the TPU", "tpu_zone": "of the TPU",
           "command_file": "a file of commands to run", "accelerate_version": "of Accelerate, to be installed"}
_FLAGS = {"use_alpha": "gcloud alpha", "install_accelerate": "Accelerate is installed first", "debug": "the command is printed and not run"}


def tpu_command_parser(subparsers=None):
    """The parser of the command's arguments."""
    parser = parser_of("tpu-config", tpu_command_launcher, subparsers, "Runs commands on the hosts of a TPU.")
    for name, text in _VALUES.items():
        parser.add_argument(f"--{name}", help=text, default="latest" if name == "accelerate_version" else None)
    parser.add_argument("--command", action="append", nargs="+", help="a command to run; can be given several times")
    for name, text in _FLAGS.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    return parser


def tpu_command_launcher(args):
    """Runs the command of the program."""
    words = [f"--{name}={getattr(args, name)}" for name in _VALUES if getattr(args, name)]
    words += [f"--command={' '.join(command)}" for command in args.command or ()]
    words += [f"--{name}" for name in _FLAGS if getattr(args, name)]
    print(program.ask("tpu-config", *words), end="")


def main():
    tpu_command_launcher(tpu_command_parser().parse_args())


if __name__ == "__main__":
    main()
