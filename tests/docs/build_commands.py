"""Command lines that build or test this project: too long to run for a page, so their parts are looked up in what they call."""

import functools
import json
import pathlib
import re
import shlex
import subprocess

PROGRAMS = ("tools/build.sh", "tools/setup.sh", "tools/test.sh", "tools/quickstart.sh", "tools/docs.sh", "tools/long_tests.py", "tools/release.sh",
            "tools/package.sh", "meson", "bench/run", "git", "build/deps/python/bin/python")
FOLDER = re.compile(r"^build/[\w-]+/")


class BuildCommands:
    def __init__(self, root, build):
        self.root, self.build = pathlib.Path(root), pathlib.Path(build)

    @staticmethod
    def is_one(line):
        words = line.split()
        while words and re.match(r"^[A-Z_]+=", words[0]):
            words.pop(0)
        return bool(words) and (words[0] in PROGRAMS or words[0] == "cd" and len(words) == 2 and words[1] == "libaccel" or bool(FOLDER.match(words[0])))

    def lines(self, text):
        """The command lines of a block that are looked up."""
        whole = re.sub(r"\\\n\s*", " ", text)
        return [part.strip() for line in whole.splitlines() for part in re.split(r" && ", line.split(" #")[0]) if self.is_one(part)]

    def others(self, text):
        """What is left of a block to be run."""
        whole = re.sub(r"\\\n\s*", " ", text)
        kept = []
        for line in whole.splitlines():
            parts = [part for part in re.split(r" && ", line) if not self.is_one(part.split(" #")[0])]
            if parts:
                kept.append(" && ".join(parts))
        return "\n".join(kept) + "\n" if kept else ""

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
        return {entry["name"] for entry in json.loads((self.build / "meson-info/intro-buildoptions.json").read_text())}

    def problem(self, line):
        """What is wrong with a command line; nothing if it is right."""
        words = shlex.split(line)
        while re.match(r"^[A-Z_]+=", words[0]):
            words.pop(0)
        program, arguments = words[0], words[1:]
        if program in ("git", "cd"):
            return ""
        if program == "build/deps/python/bin/python":
            return "" if (self.root / arguments[0]).exists() else f"there is no {arguments[0]}"
        if FOLDER.match(program):
            target = FOLDER.sub("", program)
            return "" if target in self.targets or (self.build / target).exists() else f"nothing builds {target}"
        if program == "meson":
            return self.meson_problem(arguments)
        if not (self.root / program).is_file():
            return f"there is no {program}"
        if program == "tools/build.sh":
            return self.build_problem(arguments)
        text = (self.root / program).read_text()
        for argument in arguments:
            if argument.startswith("--") and argument.split("=")[0] not in text and program != "bench/run" and program != "tools/quickstart.sh":
                return f"{program} does not know {argument}"
        return self.bench_problem(arguments) if program == "bench/run" else ""

    def meson_problem(self, arguments):
        if arguments[0] == "install":
            return ""
        if arguments[0] != "test":
            return f"meson {arguments[0]}: neither test nor install"
        names, suites = self.tests
        rest = iter(arguments[1:])
        for argument in rest:
            if argument == "-C":
                next(rest)
            elif argument == "--suite":
                suite = next(rest)
                if suite not in suites:
                    return f"no suite {suite}"
            elif not argument.startswith("-") and argument not in names:
                return f"no test {argument}"
        return ""

    def build_problem(self, arguments):
        rest = iter(arguments)
        for argument in rest:
            if argument == "-C":
                next(rest)
            elif argument.startswith("-D"):
                name = argument[2:].split("=")[0]
                if name not in self.options:
                    return f"no option {name}"
            elif not argument.startswith("-") and argument not in self.targets:
                return f"nothing builds {argument}"
        return ""

    def bench_problem(self, arguments):
        known = subprocess.run([self.root / "bench/run", "--help"], capture_output=True, text=True, check=False).stdout
        return "" if not arguments or arguments[0] in known else f"bench/run does not know {arguments[0]}"
