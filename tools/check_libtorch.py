#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles src/ and the simulated device with the headers of another LibTorch, without making anything.

usage: check_libtorch.py SOURCE_ROOT BUILD_FOLDER VERSION

The build folder tells how. As in tools/check_tidy.py, sources that are compiled alike become one compilation for each core. Skipped (77)
when `tools/setup.sh --libtorch VERSION` has not put that LibTorch into build/deps.
"""

import concurrent.futures
import os
import pathlib
import shlex
import subprocess
import sys

import check_tidy
import find_libtorch


def with_headers(words, include):
    """The arguments of a compiler with other headers of LibTorch."""
    there = {f"-isystem{folder}": f"-isystem{include}" for folder in (word.removeprefix("-isystem") for word in words)
             if os.path.exists(f"{folder}/ATen/core/Tensor.h")}
    return [next((new + word.removeprefix(old) for old, new in there.items() if word.startswith(old)), word) for word in words]


def main():
    if len(sys.argv) != 4:
        print("usage: check_libtorch.py SOURCE_ROOT BUILD_FOLDER VERSION", file=sys.stderr)
        return 2
    root, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    try:
        include = find_libtorch.pinned(root, sys.argv[3])[1] / "torch/include"
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if not include.is_dir():
        print(f"skipped: {include} is missing; tools/setup.sh --libtorch {sys.argv[3]} fetches it")
        return 77
    sources = check_tidy.commands(str(root), folder, "", ("src", "tests/simulated_device"))
    if not sources:
        print(f"{folder}/compile_commands.json has no source of src/")
        return 1
    sources = {source: (directory, tuple(with_headers(words, include))) for source, (directory, words) in sources.items()}
    cores = os.cpu_count() or 1
    own = folder / f"headers-{sys.argv[3]}"
    own.mkdir(exist_ok=True)

    def compile_unit(unit):
        """What the compiler says when it refuses."""
        directory, words = unit.how
        call = [*shlex.split(os.environ.get("CXX", "c++")), "-fsyntax-only", *words, str(unit.file)]
        result = subprocess.run(call, cwd=directory, capture_output=True, text=True, check=False)
        return "" if result.returncode == 0 else result.stdout + result.stderr

    # The largest first, so that no core waits for the last one alone.
    units = sorted(check_tidy.together(sources, own, False, cores), key=lambda unit: -unit.size)
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        said = [text for text in pool.map(compile_unit, units) if text]
    print("\n".join(said) if said else f"{len(sources)} sources compile with the headers of LibTorch {sys.argv[3]}")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
