# SPDX-License-Identifier: Apache-2.0
"""Command lines that build, test or measure this project. They take minutes to hours, so they are rehearsed on the build that is there:
each is replaced by one that takes seconds, and does of it what can be done so; what their arguments name must exist."""

import dataclasses
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess

FOLDER = re.compile(r"^build/(?!deps/)[\w-]+/")
# What the program says of its work instead of doing it.
SAYS_ONLY = {"tools/setup.sh": "--check", "tools/quickstart.sh": "--check", "tools/long_tests.py": "--dry-run",
             "build/deps/python/bin/python tools/apigen": "--check", "bench/run": "--help"}
# {command line: why nothing of it is run}; those of other pages are run as they stand.
NOT_RUN = {
    "tools/test.sh": "this test is a part of it",
    "tools/test.sh --all": "this test is a part of it",
    "tools/test.sh --ci": "this test is a part of it",
    "tools/test.sh -C build/develop": "this test is a part of it",
    "tools/test_libtorch.sh 2.11.0": "it builds everything with another LibTorch",
    "tools/test_python.sh python3.12": "it builds everything for another Python",
    "git clone <this repository> libaccel": "only its reader knows the address",
    "pip install --find-links build/packages libaccel": "tools/package.sh makes the folder; bare_root_trial.py installs the wheel from it",
    "apt install ./libaccel_0.1.0_amd64.deb": "it would change this system; bare_root_trial.py unpacks the package",
}


def command_lines(text):
    """Without comments; long ones that go on in the next line are one, those joined by && are several."""
    whole = re.sub(r"\\\n\s*", " ", text)
    lines = [re.split(r"\s#", line)[0].strip() for line in whole.splitlines() if not line.startswith("#")]
    return [part.strip() for line in lines for part in re.split(r" && ", line) if part.strip()]


def split_variables(line):
    """("NAME=value ...", words)"""
    found = re.match(r"^((?:[A-Z_]+=(?:\$\(.*\)|\S*)\s+)*)(.*)$", line)
    return found[1], shlex.split(found[2])


@dataclasses.dataclass
class Rehearsal:
    command: str = ""  # what runs in its place
    problem: str = ""


class BuildCommands:
    def __init__(self, root, build):
        self.root, self.build = pathlib.Path(root), pathlib.Path(build)

    @staticmethod
    def is_one(line):
        words = split_variables(line)[1]
        return bool(words) and (words[0] in ("tools/build.sh", "tools/test.sh", "meson") or line in NOT_RUN and words[0].startswith("tools/") or bool(FOLDER.match(words[0])) or any(" ".join(words).startswith(program) for program in SAYS_ONLY))

    def has_one(self, text):
        return any(self.is_one(line) for line in command_lines(text))

    @functools.cached_property
    def targets(self):
        """What Ninja can make, by the paths that tools/build.sh takes."""
        return set(re.findall(r"^build (\S+?):", (self.build / "build.ninja").read_text(), re.MULTILINE))

    @functools.cached_property
    def tests(self):
        entries = json.loads((self.build / "meson-info/intro-tests.json").read_text())
        return {entry["name"] for entry in entries}, {suite.split(":")[-1] for entry in entries for suite in entry["suite"]}

    @functools.cached_property
    def options(self):
        return {entry["name"]: entry for entry in json.loads((self.build / "meson-info/intro-buildoptions.json").read_text())}

    def rehearse(self, line):
        if line in NOT_RUN or re.fullmatch(r"cd \w+", line):
            return Rehearsal()
        variables, words = split_variables(line)
        program, arguments = words[0], words[1:]
        if program == "eval":  # the variables of the build that is there
            return Rehearsal(re.sub(r"environment\.sh[^)]*", f"environment.sh {shlex.quote(str(self.build))}", line))
        if program == "export":
            return Rehearsal(re.sub(r"\$PWD/build/\w+", str(self.build), line))
        if program == "tools/build.sh":
            return self.rehearse_build(variables, arguments)
        if program == "meson":
            return self.rehearse_meson(variables, arguments)
        if FOLDER.match(program):
            target = FOLDER.sub("", program)
            if target not in self.targets:
                return Rehearsal(problem=f"nothing builds {target}")
            return Rehearsal(f"{variables}{shlex.quote(str(self.build / target))} {shlex.join(arguments)}")
        for known, says_only in SAYS_ONLY.items():
            if shlex.join(words).startswith(known):
                unknown = [argument for argument in arguments if argument.startswith("--") and argument not in self.help_of(known, arguments)]
                return Rehearsal(f"{line} {says_only}", f"{known} does not know {unknown[0]}" if unknown else "")
        if program.startswith(("tools/", "bench/", "build/", "git", "apt")):
            return Rehearsal(problem=f"nothing says how {program} is rehearsed")
        return Rehearsal(line)

    def help_of(self, program, arguments):
        """bench/run has options by workload; the scripts have theirs in their source."""
        if program != "bench/run":
            file = self.root / program.split()[-1]
            return file.read_text() if file.is_file() else (file / "__main__.py").read_text()
        return subprocess.run([self.root / program, arguments[0], "--help"], capture_output=True, text=True, check=False).stdout

    def rehearse_build(self, variables, arguments):
        targets, rest = [], iter(arguments)
        for argument in rest:
            if argument == "-C":
                next(rest)
            elif argument.startswith("-D"):
                name, _, value = argument[2:].partition("=")
                choices = self.options.get(name, {}).get("choices")
                if name not in self.options or choices and value not in choices and not set(value.split(",")) <= set(choices):
                    return Rehearsal(problem=f"no option {argument}")
            elif not argument.startswith("-"):
                if argument not in self.targets:
                    return Rehearsal(problem=f"nothing builds {argument}")
                targets.append(argument)
        if variables.startswith("LIBTORCH="):  # another LibTorch: whether the build would take it
            python = self.root / "build/deps/torch_python/bin"  # by tools/setup.sh --torch
            return Rehearsal(f"export PATH={python}:$PATH\n{variables}python3 tools/find_libtorch.py '' ." if python.exists() else "")
        command = ["ninja", "-C", str(self.build), "-n", *targets]
        would = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment())
        if "no work to do" in would.stdout:  # then so does the build itself
            command = ["tools/build.sh", "-C", str(self.build), *targets]
        return Rehearsal(shlex.join(command), would.stderr)

    def environment(self):
        return {**os.environ, "PATH": f"{self.root / 'build/deps/bin'}:{os.environ['PATH']}"}

    def rehearse_meson(self, variables, arguments):
        if arguments[0] == "install":
            return Rehearsal(f"meson {shlex.join(arguments)} --no-rebuild --dry-run".replace("build/release", str(self.build)))
        if arguments[0] != "test":
            return Rehearsal(problem=f"meson {arguments[0]}: neither test nor install")
        names, suites = self.tests
        kept, rest = [], iter(arguments[1:])
        for argument in rest:
            if argument == "-C":
                next(rest)
            elif argument in ("--suite", "--no-suite", "--setup"):
                kept += [argument, next(rest)]
                if argument != "--setup" and kept[-1] not in suites:
                    return Rehearsal(problem=f"no suite {kept[-1]}")
            else:
                kept.append(argument)
                if not argument.startswith("-") and argument not in names:
                    return Rehearsal(problem=f"no test {argument}")
        return Rehearsal(f"{variables}meson test -C {shlex.quote(str(self.build))} --list {shlex.join(kept)}")
