# SPDX-License-Identifier: Apache-2.0
"""All commands, as `python -m accel.commands.accelerate_cli` runs them: those of the program."""

import os
import sys

from . import program


def main():
    """Becomes the program, with the same arguments."""
    path = program.find_program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
