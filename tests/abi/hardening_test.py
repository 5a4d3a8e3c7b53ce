#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is installed is hardened: addresses are bound before anything runs and read-only then, no stack is executable, programs can be placed
anywhere, stacks and copies are checked, and branches have marked targets.

usage: hardening_test.py BUILD MESON OPTIMIZATION
"""

import pathlib
import platform
import re
import subprocess
import sys
import tempfile

BY_CARGO = "tokenizers"  # Rust checks its copies itself, and has no stack protector
# Where copies of unknown sizes are. Others may have none that the compiler would check.
FORTIFIED = re.compile(r"libaccel\.so.*|accel")
# endbr64. The linker drops the note of the property where the system's start files have none, as Debian's.
MARKED_TARGET = b"\xf3\x0f\x1e\xfa"


def read(option, file):
    return subprocess.run(["readelf", "--wide", option, file], capture_output=True, text=True, check=True).stdout


def problems(file, is_fortified):
    header, segments, dynamic = read("--file-header", file), read("--segments", file), read("--dynamic", file)
    if "DYN " not in header:
        yield "has a fixed address; build with b_pie"
    if "GNU_RELRO" not in segments or not re.search(r"BIND_NOW|Flags:.*\bNOW\b", dynamic):
        yield "keeps its addresses writable; link with -z relro -z now"
    stack = re.search(r"GNU_STACK.*", segments)
    if stack is None or "E" in stack.group().split()[6]:
        yield "has an executable stack; link with -z noexecstack"
    if BY_CARGO in file.name:
        return
    symbols = read("--dyn-syms", file)
    if "__stack_chk_fail" not in symbols:
        yield "has no stack protector; compile with -fstack-protector-strong"
    if is_fortified and FORTIFIED.fullmatch(file.name) and not re.search(r"UND __\w+_chk\b(?<!__stack_chk)", symbols):
        yield "has no checked copy; compile with -D_FORTIFY_SOURCE=3"
    if platform.machine() == "x86_64" and file.read_bytes().count(MARKED_TARGET) < 10:
        yield "has no marked targets of branches; compile with -fcf-protection=branch"


def main():
    if len(sys.argv) != 4:
        print("usage: hardening_test.py BUILD MESON OPTIMIZATION", file=sys.stderr)
        return 2
    build, meson, optimization = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder], check=True)
        files = [file for file in sorted(pathlib.Path(folder).rglob("*")) if file.is_file() and not file.is_symlink()]
        files = [file for file in files if file.open("rb").read(4) == b"\x7fELF"]
        found = [f"{file.name} {problem}" for file in files for problem in problems(file, optimization in "23s")]
        if not any(file.name.startswith("libaccel.so") for file in files) or not any(file.name == "accel" for file in files):
            found.append("libaccel.so or accel is not installed")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
