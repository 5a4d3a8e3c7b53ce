#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy with the settings of .clang-tidy over everything of src/ that a build folder compiles.

usage: check_tidy.py SOURCE_ROOT BUILD_FOLDER [--paths] [--without-libtorch] [PART_OF_A_PATH]

Most of its time goes into LibTorch's headers, so all sources that are compiled alike become one compilation for each core:
minutes instead of most of an hour. --paths runs the path-sensitive analysis instead, half an hour on two cores; --without-libtorch takes only
what is compiled without those headers, seconds. What has passed is remembered in the build folder, until something in it changes; a run that was interrupted goes on there. Skipped (77) when
clang-tidy is not installed.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

# What makes no sense in a compilation that includes sources.
TOGETHER = ["--checks=-bugprone-suspicious-include"]
# Functions as large as require() are always looked into: else each `require(pointer != nullptr, ...)` is forgotten far inside.
PATHS = ["--checks=-*,clang-analyzer-core.*,clang-analyzer-cplusplus.*,clang-analyzer-unix.*",
         *(f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "ipa-always-inline-size=12"))]
PATHS_BYTES = 80_000  # of sources in a compilation whose paths are analysed
LEAST_BYTES = 400_000  # of sources for each core: of fewer, most of the time goes into the headers once more


def commands(root, folder, part, places=("src",)):
    """{source: (folder, arguments of the compiler)} of some places, each source once, although several instruction sets compile it."""
    found = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        file = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        if not file.endswith(".cpp") or not file.startswith(tuple(f"{above}/{place}/" for above in (root, folder) for place in places)):
            continue
        for source in included_sources(file) or [file]:
            if part in source:
                found.setdefault(source, (entry["directory"], tuple(arguments_for_clang(entry["command"]))))
    return found


def included_sources(file):
    """Those of a unit that Meson made."""
    names = re.findall(r'^#include\s*["<]([^">]+\.cpp)[">]', pathlib.Path(file).read_text(), re.MULTILINE)
    return [os.path.normpath(os.path.join(os.path.dirname(file), name)) for name in names]


def arguments_for_clang(command):
    """The compiler's arguments without compiler, source, output, and what is made for the target's own use."""
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word in ("-o", "-MF", "-MQ", "-c"):
            next(words, None)
        elif word.startswith("-I") and word.endswith(".p"):
            continue  # the target's own folder, in which nothing is: targets that compile alike are one
        elif word.startswith("-") and word != "-MD":
            kept.append(word)
    # The compiler itself warns about what is deprecated, but not inside of the C++ library's headers.
    return [*kept, "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument", "-Wno-ignored-optimization-argument",
            "-Wno-deprecated-declarations"]


class Unit:
    """A compilation of some sources, which are included, or copied: the analysis of paths looks at the main file only."""

    def __init__(self, folder, sources, how, copies):
        self.how, self.size = how, 0
        self._begins = []  # (line, source)
        text = ""
        for source in sources:
            content = pathlib.Path(source).read_text()
            self.size += len(content)
            if copies:
                self._begins.append((text.count("\n") + 1, source))
                text += content
            else:
                text += f'#include "{source}"\n'
        self.file = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
        self.file.write_text(text)

    def with_places(self, messages):
        """Messages about copies are about the sources."""
        def source(match):
            begin, name = max(entry for entry in self._begins if entry[0] <= int(match[1]))
            return f"{name}:{int(match[1]) - begin + 1}:"
        return re.sub(rf"{re.escape(str(self.file))}:(\d+):", source, messages) if self._begins else messages


def has_public_names(file, seen=None):
    """Whether a source or a header of src/ that it includes has the public C++ names."""
    seen = set() if seen is None else seen
    seen.add(file)
    text = pathlib.Path(file).read_text()
    above = file.rpartition("/src/")[0] + "/src/"
    included = (above + name for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE))
    return "<accel.hpp>" in text or any(has_public_names(name, seen) for name in included if name not in seen and os.path.isfile(name))


def together(sources, folder, copies, parts):
    """Sources that are compiled alike, joined to `parts` units of about the same size, but not of fewer than LEAST_BYTES, or of PATHS_BYTES."""
    alike = {}
    for file, how in sources.items():
        # The public C++ names and the engine's are alike, and no source has both.
        is_outside = has_public_names(file)
        alike.setdefault((how, is_outside), []).append(file)
    units = []
    for (how, _), files in alike.items():
        total = sum(map(os.path.getsize, files))
        most = total / (min(parts, max(total // LEAST_BYTES, 1)) if parts else -(-total // PATHS_BYTES))
        members = [[]]
        size = 0
        for file in files:  # neighbours stay together
            if members[-1] and size + os.path.getsize(file) / 2 > most * len(members):
                members.append([])
            members[-1].append(file)
            size += os.path.getsize(file)
        units += [Unit(folder, names, how, copies) for names in members]
    return units


def own_sources(text, root):
    """The files of the project that a source includes, directly or by others."""
    found = {}
    left = [text]
    while left:
        for name in re.findall(r'^#include\s*["<]([^">]+)[">]', left.pop(), re.MULTILINE):
            for file in (root / "src" / name, root / "include" / name):
                if file not in found and file.exists():
                    found[file] = file.read_text()
                    left.append(found[file])
    return "".join(found[file] for file in sorted(found))


def main():
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--paths", "--without-libtorch")]
    paths = "--paths" in sys.argv
    if len(arguments) not in (2, 3):
        print("usage: check_tidy.py SOURCE_ROOT BUILD_FOLDER [--paths] [--without-libtorch] [PART_OF_A_PATH]", file=sys.stderr)
        return 2
    root, folder = (pathlib.Path(argument).resolve() for argument in arguments[:2])
    program = shutil.which("clang-tidy", path=os.pathsep.join((f"{root}/build/deps/bin", os.environ["PATH"])))
    if program is None:
        print("skipped: clang-tidy is not installed")
        return 77
    # The settings themselves first: clang-tidy only warns about those that it cannot read.
    settings = subprocess.run([program, "--dump-config"], cwd=root, capture_output=True, text=True, check=False)
    if settings.returncode != 0 or settings.stderr:
        print(settings.stderr)
        return 1
    sources = commands(str(root), folder, arguments[2] if len(arguments) == 3 else "")
    if "--without-libtorch" in sys.argv:
        sources = {source: how for source, how in sources.items() if not any("/torch/" in flag for flag in how[1])}
    if not sources:
        print(f"{folder}/compile_commands.json has no source of src/")
        return 1
    cores = os.cpu_count() or 1
    own = folder / ("tidy_paths" if paths else "tidy")
    own.mkdir(exist_ok=True)
    rules = PATHS if paths else TOGETHER
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout

    def check(unit):
        """What is wrong with it."""
        directory, flags = unit.how
        text = unit.file.read_text()
        parts = (version, settings.stdout, text, own_sources(text, root), *flags, *rules)
        passed = own / f"{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()}.passed"
        if passed.exists():
            return ""
        call = [program, "--quiet", f"--config-file={root}/.clang-tidy", *rules, str(unit.file), "--", *flags]
        result = subprocess.run(call, cwd=directory, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            passed.touch()
            return ""
        # The way to a place matters only to the analysis of paths.
        errors = [line for line in result.stdout.splitlines() if ": error: " in line]
        return unit.with_places(result.stdout if paths or not errors else "\n".join(errors)) + ("" if errors else result.stderr)

    # The largest first, so that no core waits for the last one alone.
    units = sorted(together(sources, own, paths, None if paths else cores), key=lambda unit: -unit.size)
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        said = {line for text in pool.map(check, units) for line in ([text] if paths else text.splitlines()) if line}
    print("\n".join(sorted(said)) if said else f"{len(sources)} sources keep the rules of .clang-tidy")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
