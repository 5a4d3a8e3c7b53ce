#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the installed library and plugins ask of the dynamic linker: which libraries they need, and where it looks for them.

usage: dynamic_section_test.py BUILD LIBTORCH MESON

LIBTORCH is the folder of the build's LibTorch, MESON the program. A run path is relative to the file ($ORIGIN) or that folder;
anything else would find files of whoever made such a folder.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

RUNTIME = {"ld-linux-x86-64.so.2", "libc.so.6", "libgcc_s.so.1", "libm.so.6", "libstdc++.so.6"}
LIBTORCH_PARTS = {"libc10.so", "libtorch_cpu.so"}
NEEDED = {
    "libaccel.so": RUNTIME | LIBTORCH_PARTS | {"libcjson.so.1", "libdeflate.so.0", "libdouble-conversion.so.3", "libpng16.so.16", "libturbojpeg.so.0",
                                             "libyaml-0.so.2", "libzstd.so.1"},
    "libaccel_ucx.so": RUNTIME | LIBTORCH_PARTS | {"libucp.so.0", "libucs.so.0"},
}
ENTRY = re.compile(r"\((NEEDED|RPATH|RUNPATH|FLAGS_1|TEXTREL)\)\s+(?:[^:]*: )?\[?(.*?)\]?$", re.MULTILINE)


def problems(file, expected, libtorch):
    """What is wrong with one library."""
    text = subprocess.run(["readelf", "--wide", "--dynamic", file], capture_output=True, text=True, check=True).stdout
    entries = {}
    for kind, value in ENTRY.findall(text):
        entries.setdefault(kind, []).append(value)
    for library in sorted(set(entries.get("NEEDED", [])) - expected):
        yield f"{file.name} needs {library}; expected only {', '.join(sorted(expected))}"
    for library in sorted(LIBTORCH_PARTS - set(entries.get("NEEDED", []))):
        yield f"{file.name} does not need {library}, which it uses"
    for paths in entries.get("RUNPATH", []):
        for path in paths.split(":"):
            if path not in ("$ORIGIN", libtorch) and not path.startswith("$ORIGIN/"):
                yield f"{file.name} has '{path}' in its run path; expected $ORIGIN/... or {libtorch}"
    for kind in {"RPATH", "TEXTREL"} & entries.keys():
        yield f"{file.name} has {kind}; expected none"
    if "NODELETE" not in " ".join(entries.get("FLAGS_1", [])):
        yield f"{file.name} can be unloaded under running threads; link it with -z nodelete"


def main():
    if len(sys.argv) != 4:
        print("usage: dynamic_section_test.py BUILD LIBTORCH MESON", file=sys.stderr)
        return 2
    build, libtorch, meson = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder], check=True)
        found = []
        for name, expected in NEEDED.items():
            for file in sorted(pathlib.Path(folder).rglob(name)):
                found += problems(file.resolve(), expected, libtorch)
        if not list(pathlib.Path(folder).rglob("libaccel.so")):
            found.append("libaccel.so is not installed")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
