# SPDX-License-Identifier: Apache-2.0
"""The command `env`: what a bug report should know."""

import importlib.metadata
import os
import platform
from shutil import which

from .. import __version__
from . import program
from .arguments import parser_of
from .config.config_args import default_config_file, load_config_from_file


def env_command_parser(subparsers=None):
    """The parser of the command's arguments."""
    parser = parser_of("env", env_command, subparsers)
    parser.add_argument("--config_file", "--config-file", help="a configuration file to show; default: that in the cache folder")
    return parser


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _rows(report, path=""):
    """The leaves of nested objects by their paths."""
    if not isinstance(report, dict):
        return {path: report}
    return {name: value for key, inner in report.items() for name, value in _rows(inner, f"{path}.{key}" if path else key).items()}


def env_command(args):
    """Prints the report, and returns it."""
    config = "Not found"
    if args.config_file is not None or os.path.isfile(default_config_file):
        config = load_config_from_file(args.config_file).to_dict()
    info = {"`Accelerate` version": __version__, "Platform": platform.platform(), "`accelerate` bash location": which("accelerate") or "Not found",
            "Python version": platform.python_version(), "Numpy version": _version("numpy"), "PyTorch version": _version("torch"),
            **_rows(program.ask_json("env", "--json"))}
    print("\n".join(f"- {name}: {value}" for name, value in info.items()))
    print("- `Accelerate` default config:" if args.config_file is None else "- `Accelerate` config passed:")
    print("\n".join(f"\t- {name}: {value}" for name, value in config.items()) if isinstance(config, dict) else f"\t{config}")
    return {**info, "`Accelerate` configs": config}


def main():
    env_command(env_command_parser().parse_args())
    return 0


if __name__ == "__main__":
    main()
