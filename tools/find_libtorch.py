#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the include folder, the library folder and the version of the LibTorch to build with, and a warning or nothing, one a line.

usage: find_libtorch.py FOLDER_OR_VERSION SOURCE_ROOT

The first that is set decides: FOLDER_OR_VERSION (the Meson option `libtorch`, may be empty), $LIBTORCH, SOURCE_ROOT/build/deps/torch.
A version is one that tools/setup.sh --libtorch VERSION has put into build/deps. Those are tried, by tools/test_libtorch.sh: they have a file
tools/libtorch*.txt each. A folder is a LibTorch if it has include/ and lib/libtorch_cpu.so, as the `torch` folder of the Python package has.
"""

import os
import pathlib
import re
import sys

OLDEST, NEWEST = (2, 11), (2, 15)
VERSION_HEADERS = ("include/torch/headeronly/version.h", "include/torch/csrc/api/include/torch/version.h")


def pinned_versions(root):
    """{version: (file with the hashes of its wheels, folder that its `torch` is in)}; the default comes first."""
    found = {}
    for pins in sorted(pathlib.Path(root, "tools").glob("libtorch*.txt"), key=lambda file: (file.stem != "libtorch", file.name)):
        version = re.search(r"^torch==(\S+)", pins.read_text(), re.MULTILINE)[1]
        found[version] = (pins, pathlib.Path(root, "build", "deps", "" if pins.stem == "libtorch" else f"libtorch-{version}"))
    return found


def pinned(root, version):
    """What stands for a version in pinned_versions, or for the default if there is none; raises ValueError with a one-line reason."""
    known = pinned_versions(root)
    if version and version not in known:
        raise ValueError(f"{version} is not a pinned version: expected one of {', '.join(known)}; another LibTorch is given as a folder, by "
                         "-Dlibtorch=FOLDER or $LIBTORCH")
    return known[version] if version else next(iter(known.values()))


def not_tried(root, version):
    """What is to be said of a version that no test of this project has run with: a line, or nothing."""
    known = pinned_versions(root)
    if ".".join(map(str, version[:2])) in {name.rpartition(".")[0] for name in known}:
        return ""
    return f"LibTorch {'.'.join(map(str, version))} is not tried: {', '.join(sorted(known))} are; expect errors of the compiler or failing tests"


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
    if re.fullmatch(r"\d+\.\d+(\.\d+)?", str(folder)):
        version, folder = str(folder), pinned(source_root, str(folder))[1] / "torch"
        if not folder.is_dir():
            raise ValueError(f"LibTorch {version} (from {origin}) is not in {folder}: run tools/setup.sh --libtorch {version}")
    folder = pathlib.Path(os.path.abspath(folder.expanduser()))
    for part in ("include/ATen/core/Tensor.h", "lib/libtorch_cpu.so", "lib/libc10.so"):
        if not (folder / part).exists():
            raise ValueError(f"{folder} (from {origin}) is not a LibTorch: {part} is missing")
    version = read_version(folder)
    if version is None:
        raise ValueError(f"{folder} (from {origin}) does not tell its version: {VERSION_HEADERS[0]} is missing")
    if not OLDEST <= version[:2] <= NEWEST:
        shown = ".".join(map(str, version))
        raise ValueError(f"LibTorch {shown} in {folder} (from {origin}) is not supported: 2.11 to 2.13 are, and 2.14 and 2.15 are taken untried")
    return folder, version


def main():
    if len(sys.argv) != 3:
        print("usage: find_libtorch.py FOLDER_OR_VERSION SOURCE_ROOT", file=sys.stderr)
        return 2
    try:
        folder, version = find(*sys.argv[1:])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(folder / "include", folder / "lib", ".".join(map(str, version)), not_tried(sys.argv[2], version), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
