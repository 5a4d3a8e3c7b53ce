# SPDX-License-Identifier: Apache-2.0
"""The program `accel`, which has the rules of all commands: the modules of this folder only translate to and from it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

_PACKAGE = pathlib.Path(__file__).parents[1]
_BUILD_FOLDER = pathlib.Path(__file__).parents[4]  # of the package before it is installed


def find_program():
    """$ACCEL_PROGRAM, else the one that was installed or built with this package, else that of PATH."""
    named = os.environ.get("ACCEL_PROGRAM")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"ACCEL_PROGRAM={named}: expected the program accel")
        return named
    beside = (_PACKAGE / "bin" / "accel", pathlib.Path(sysconfig.get_path("scripts")) / "accel", _BUILD_FOLDER / "src" / "cli" / "accel")
    found = next((str(place) for place in beside if os.access(place, os.X_OK)), None) or shutil.which("accel")
    if found is None:
        raise FileNotFoundError("the program accel was not found: it comes with this package; set ACCEL_PROGRAM to it, or put it into PATH")
    return found


def main():
    """The script `accel` of a wheel: becomes the program."""
    try:
        program = find_program()
    except FileNotFoundError as error:
        sys.exit(f"accel: {error}")
    os.execv(program, ["accel", *sys.argv[1:]])


def _refusal(done):
    """The error of a command that the program has not begun."""
    message = done.stderr.strip().removeprefix("accel: ") or f"accel ended with exit status {done.returncode}"
    return FileNotFoundError(message) if done.returncode == 127 else ValueError(message)


def _done(arguments, environment):
    done = subprocess.run([find_program(), *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})
    if done.returncode:
        raise _refusal(done)
    return done


def ask(*arguments, **environment):
    """The output of a command. A refusal is a ValueError, a file that is not there a FileNotFoundError."""
    return _done(arguments, environment).stdout


def ask_for_notes(*arguments):
    """The text that a command prints on stderr beside its work."""
    return _done(arguments, {}).stderr


def ask_json(*arguments, **environment):
    return json.loads(ask(*arguments, **environment))


def run(*arguments):
    """Runs a command on this process's terminal; one that fails is a CalledProcessError."""
    return subprocess.run([find_program(), *map(str, arguments)], check=True)


def read_configuration(path):
    """The settings of a configuration file, with those of older versions converted. The program writes them as JSON, which Python reads."""
    path = os.fspath(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "configuration.json")
        shutil.copyfile(path, copy)
        try:
            ask("config", "update", "--config_file", copy)
        except ValueError as error:
            raise ValueError(str(error).replace(copy, path)) from None
        with open(copy, encoding="utf-8") as file:
            return json.load(file)
