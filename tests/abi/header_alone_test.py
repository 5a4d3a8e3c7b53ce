#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each header alone, in each language version that it promises, by gcc and clang; every warning is an error.

usage: header_alone_test.py SOURCE_ROOT

The program for accel.h uses every INIT macro and takes the address of every function. 77: there is no clang, gcc accepted
everything.
"""

import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COMPILERS = {"gcc": {"c": "gcc", "c++": "g++"}, "clang": {"c": "clang", "c++": "clang++"}}
STANDARDS = (("c", "c99"), ("c", "c11"), ("c", "c17"), ("c++", "c++17"), ("c++", "c++20"))
WARNINGS = ("-pedantic", "-Wall", "-Wextra", "-Werror")
INIT_MACRO = re.compile(r"^#define (ACCEL_(\w+)_INIT) ", re.MULTILINE)


def program(header, api):
    """A source that uses everything. Included twice: the guard holds."""
    lines = ["#include <accel.h>", "#include <accel.h>", "", "typedef void (*function_t)(void);"]
    for macro, name in INIT_MACRO.findall(header):
        lines.append(f"accel_{name.lower()}_t initial_{name.lower()} = {macro};")
    names = [function["name"] for function in api["functions"]]
    lines += [f"function_t functions[{len(names)}];", "void take_addresses(void);", "void take_addresses(void) {"]
    lines += [f"  functions[{place}] = (function_t){name};" for place, name in enumerate(names)]
    return "\n".join(lines + ["}", ""])


# Regression: generators of bindings did not see the statuses, which were casts.
def constants(api):
    """A source with every number. Without casts: generators of bindings leave those out that have one."""
    names = ", ".join(constant["name"] for constant in api["constants"] if constant["type"] != "text")
    return f"#include <accel.h>\nextern const double constants[];\nconst double constants[] = {{{names}}};\n"


def main():
    if len(sys.argv) != 2:
        print("usage: header_alone_test.py SOURCE_ROOT", file=sys.stderr)
        return 2
    root = pathlib.Path(sys.argv[1])
    api = json.loads((root / "api/accel.json").read_text())
    headers = (root / "include").rglob("*.h")
    source = program("".join(file.read_text() for file in headers), api)
    cases = [("accel.h", source, *standard) for standard in STANDARDS]
    cases += [("the constants of accel.h", constants(api), "c++", "c++17", "-Wold-style-cast")]
    cases += [("accel.hpp", 2 * "#include <accel.hpp>\n", *standard) for standard in STANDARDS if standard[0] == "c++"]
    missing, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        for (family, commands), (header, text, language, standard, *more) in itertools.product(COMPILERS.items(), cases):
            if shutil.which(commands[language]) is None:
                missing.append(family)
                continue
            command = [commands[language], "-x", language, f"-std={standard}", *WARNINGS, *more, f"-I{root / 'include'}", "-c",
                       "-", "-o", f"{folder}/program.o"]
            result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                failed = True
                print(f"{commands[language]} -std={standard} does not accept {header}:\n{result.stderr}")
    if missing:
        print(f"skipped: {', '.join(sorted(set(missing)))} is not installed")
    return 1 if failed or "gcc" in missing else 77 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
