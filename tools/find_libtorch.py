#!/usr/bin/env python3
"""Prints the include folder, the library folder and the version of the LibTorch to build with, one a line.

usage: find_libtorch.py FOLDER SOURCE_ROOT

The first that is set decides: FOLDER (the Meson option `libtorch`, may be empty), $LIBTORCH,
SOURCE_ROOT/build/deps/torch.
A folder is a LibTorch if it has include/ and lib/libtorch_cpu.so, as the `torch` folder of the Python package has.
"""

import os
import pathlib
import re
import sys

OLDEST, NEWEST = (2, 11), (2, 15)
VERSION_HEADERS = ("include/torch/headeronly/version.h", "include/torch/csrc/api/include/torch/version.h")


def read_version(folder):
    """The version as (major, minor, patch), or None when no file tells it."""
    for name in VERSION_HEADERS:
        header = folder / name
        if header.is_file():
            found = dict(re.findall(r"#define TORCH_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header.read_text()))
            if len(found) == 3:
                return tuple(int(found[part]) for part in ("MAJOR", "MINOR", "PATCH"))
    for name in ("version.py", "build-version"):
        file = folder / name
        if file.is_file():
            found = re.search(r"(\d+)\.(\d+)\.(\d+)", file.read_text())
            if found:
                return tuple(int(part) for part in found.groups())
    return None


def find(option, source_root):
    """Returns (folder, version); raises ValueError with a one-line reason."""
    default = pathlib.Path(source_root, "build", "deps", "torch")
    if option:
        folder, origin = pathlib.Path(option), "the option libtorch"
    elif os.environ.get("LIBTORCH"):
        folder, origin = pathlib.Path(os.environ["LIBTORCH"]), "$LIBTORCH"
    elif default.is_dir():
        folder, origin = default, "tools/setup.sh"
    else:
        raise ValueError("no LibTorch found: run tools/setup.sh, or give a folder by -Dlibtorch=FOLDER or $LIBTORCH")
    folder = pathlib.Path(os.path.abspath(folder.expanduser()))
    for part in ("include/ATen/core/Tensor.h", "lib/libtorch_cpu.so", "lib/libc10.so"):
        if not (folder / part).exists():
            raise ValueError(f"{folder} (from {origin}) is not a LibTorch: {part} is missing")
    version = read_version(folder)
    if version is None:
        raise ValueError(f"{folder} (from {origin}) does not tell its version: {VERSION_HEADERS[0]} is missing")
    if not OLDEST <= version[:2] <= NEWEST:
        shown = ".".join(map(str, version))
        raise ValueError(f"LibTorch {shown} in {folder} (from {origin}) is not supported: 2.11 to 2.15 are")
    return folder, version


def main():
    if len(sys.argv) != 3:
        print("usage: find_libtorch.py FOLDER SOURCE_ROOT", file=sys.stderr)
        return 2
    try:
        folder, version = find(*sys.argv[1:])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(folder / "include", folder / "lib", ".".join(map(str, version)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
