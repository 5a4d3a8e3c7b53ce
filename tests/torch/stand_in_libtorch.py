#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a C source that stands in for another LibTorch: all symbols that libaccel takes from the real one, and a version.

usage: stand_in_libtorch.py NM LIBACCEL LIBTORCH_FOLDER VERSION OUTPUT

Each symbol is a function that ends the program, so that a library which touches LibTorch before it has asked for the
version does not get through the test.
"""

import pathlib
import subprocess
import sys


def symbols(nm, library, kind):
    """The dynamic symbols of one kind, without those that carry the version of another library."""
    listing = subprocess.run([nm, "-D", kind, library], check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1] for line in listing.splitlines()}
    return {name for name in names if "@" not in name}


def standard_symbols(nm, library):
    """What the C++ standard library that the library is linked with defines: LibTorch exports some of it too."""
    linked = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    file = next(line.split()[2] for line in linked.splitlines() if "libstdc++.so" in line)
    listing = subprocess.run([nm, "-D", "--defined-only", file], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines()}


def source(names, version):
    """The C source of a library of these symbols."""
    major, minor, patch = (int(part) for part in version.split("."))
    yield "#include <stdint.h>"
    yield "#pragma GCC visibility push(default)"
    yield "uint64_t aoti_torch_abi_version(void);"
    yield f"uint64_t aoti_torch_abi_version(void) {{ return {major << 56 | minor << 48 | patch << 40}u; }}"
    for name in sorted(names):
        yield f"void {name}(void);"
        yield f"void {name}(void) {{ __builtin_trap(); }}"


def main():
    if len(sys.argv) != 6:
        print("usage: stand_in_libtorch.py NM LIBACCEL LIBTORCH_FOLDER VERSION OUTPUT", file=sys.stderr)
        return 2
    nm, library, libtorch, version, output = sys.argv[1:]
    real = set()
    for name in ("libtorch_cpu.so", "libc10.so"):
        real |= symbols(nm, str(pathlib.Path(libtorch) / name), "--defined-only")
    needed = symbols(nm, library, "--undefined-only") & real - standard_symbols(nm, library)
    pathlib.Path(output).write_text("\n".join(source(needed, version)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
