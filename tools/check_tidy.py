#!/usr/bin/env python3
"""Runs clang-tidy with the settings of .clang-tidy over everything of src/ that a build folder compiles.

usage: check_tidy.py SOURCE_ROOT BUILD_FOLDER [--each] [PART_OF_A_PATH]

Most of its time goes into LibTorch's headers, so all sources that are compiled alike become one compilation for each core:
minutes instead of most of an hour. --each checks every compilation alone, and adds the path-sensitive analysis
(clang-analyzer-*), which looks only at the main file of a compilation; that needs a folder that compiles file by file, as
build/develop does. Skipped (77) when clang-tidy is not installed.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

# What makes no sense in a compilation that includes sources.
NOT_TOGETHER = "-bugprone-suspicious-include,-clang-analyzer-*"


def commands(root, folder, part):
    """{source: (folder, arguments of the compiler)} of src/, each source once, although several instruction sets compile it."""
    found = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        file = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        is_ours = file.startswith((f"{root}/src/", f"{folder}/src/"))
        if file.endswith(".cpp") and is_ours and part in file:
            found.setdefault(file, (entry["directory"], tuple(arguments_for_clang(entry["command"]))))
    return found


def arguments_for_clang(command):
    """The compiler's arguments without compiler, source, output, and what is made for the target's own use."""
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word in ("-o", "-MF", "-MQ", "-c"):
            next(words, None)
        elif word.startswith("-") and word != "-MD":
            kept.append(word)
    return [*kept, "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument"]


def together(sources, folder, parts):
    """Sources that are compiled alike, joined to `parts` compilations of about the same size."""
    alike = {}
    for file, how in sources.items():
        # The public C++ names and the engine's are alike, and no source has both.
        is_outside = "<accel.hpp>" in pathlib.Path(file).read_text()
        alike.setdefault((how, is_outside), []).append(file)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    joined = {}
    for (how, _), files in alike.items():
        sizes = [0] * parts
        members = [[] for _ in sizes]
        for file in files:  # neighbours stay together while there is room
            smallest = next((i for i, size in enumerate(sizes) if size <= sum(map(source_size, files)) / parts - source_size(file)),
                            sizes.index(min(sizes)))
            members[smallest].append(file)
            sizes[smallest] += source_size(file)
        for file_list in filter(None, members):
            unit = folder / f"{len(joined)}.cpp"
            unit.write_text("".join(f'#include "{file}"\n' for file in file_list))
            joined[str(unit)] = how
    return joined


def source_size(file):
    """Its bytes, or those of the sources that it includes."""
    text = pathlib.Path(file).read_text()
    included = re.findall(r'^#include\s*["<]([^">]+\.cpp)[">]', text, re.MULTILINE)
    return len(text) + sum(os.path.getsize(name) for name in included)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--each"]
    each = len(arguments) < len(sys.argv) - 1
    if len(arguments) not in (2, 3):
        print("usage: check_tidy.py SOURCE_ROOT BUILD_FOLDER [--each] [PART_OF_A_PATH]", file=sys.stderr)
        return 2
    root, folder = (pathlib.Path(argument).resolve() for argument in arguments[:2])
    program = shutil.which("clang-tidy")
    if program is None:
        print("skipped: clang-tidy is not installed")
        return 77
    # The settings themselves first: clang-tidy only warns about those that it cannot read.
    settings = subprocess.run([program, "--dump-config"], cwd=root, capture_output=True, text=True, check=False)
    if settings.returncode != 0 or settings.stderr:
        print(settings.stderr)
        return 1

    def check(source):
        file, (directory, flags) = source
        fewer = [] if each else [f"--checks={NOT_TOGETHER}"]
        call = [program, "--quiet", f"--config-file={root}/.clang-tidy", *fewer, file, "--", *flags]
        return subprocess.run(call, cwd=directory, capture_output=True, text=True, check=False)

    cores = os.cpu_count() or 1
    sources = commands(str(root), folder, arguments[2] if len(arguments) == 3 else "")
    if not sources:
        print(f"{folder}/compile_commands.json has no source of src/")
        return 1
    compilations = sources if each else together(sources, folder / "tidy", cores)
    # The largest first, so that no core waits for the last one alone.
    order = sorted(compilations.items(), key=lambda source: -source_size(source[0]))
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        failed = [result for result in pool.map(check, order) if result.returncode != 0]
    said = {line for result in failed for line in result.stdout.splitlines() if ": error: " in line}
    said |= {result.stdout + result.stderr for result in failed if ": error: " not in result.stdout}
    print("\n".join(sorted(said)) if said else f"{len(sources)} compilations keep the rules of .clang-tidy")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
