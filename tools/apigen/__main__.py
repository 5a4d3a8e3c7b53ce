#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes everything that follows from include/accel.h: its description api/accel.json, and from that the files below.

usage: python3 tools/apigen SOURCE_ROOT [--check]

The header is checked against the conventions first (lint.py). With --check nothing is written: files that differ are
named, and the result is 1. Needs the packages libclang and PyYAML (tools/setup.sh --develop); 77 says that
one of them is not there.
"""

import importlib
import json
import pathlib
import sys

import licence
import lint

EMITTERS = [importlib.import_module(f"emit_{name}") for name in (
    "map", "cdef", "options", "settings", "sweeps", "rust", "rust_options", "rust_functions", "julia",
    "julia_methods", "go", "swig", "stubs", "python", "python_names", "python_settings", "python_errors", "python_methods", "cpp", "reference", "environment", "coverage")]
GENERATED_PARTS = [importlib.import_module(f"emit_{name}") for name in ("options_init",)]  # of the header itself
NOT_STORED = ("line", "documented", "wrong_options", "places")


def without_lines(value):
    """The description without what changes when text moves."""
    if isinstance(value, dict):
        return {key: without_lines(item) for key, item in value.items() if key not in NOT_STORED}
    return [without_lines(item) for item in value] if isinstance(value, list) else value


def as_json(api):
    """One line for each declaration, so that a difference shows which one changed."""
    def text(value):
        return json.dumps(value, ensure_ascii=False)
    parts = []
    for key, value in api.items():
        entries = ",\n".join(f"  {text(entry)}" for entry in value) if isinstance(value, list) else ""
        parts.append(f" {text(key)}: " + (f"[\n{entries}\n ]" if entries else text(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def outputs(root, api):
    """{path: content} of everything that is generated."""
    stored = without_lines(api)
    files = {"api/accel.json": as_json(stored)}
    for emitter in EMITTERS:
        files.update(emitter.emit(stored, root))
    files[".gitattributes"] = attributes([*files, *(part.HEADER for part in GENERATED_PARTS)])
    return {path: licence.named(path, content) for path, content in files.items()}


# What Git and reviews need to know of files by their names. Fixtures are read byte by byte: no line end of theirs may change.
ATTRIBUTES = """* text=auto eol=lf
*.cpp diff=cpp
*.hpp diff=cpp
*.go diff=golang
*.md diff=markdown
*.py diff=python
*.rs diff=rust
*.bin binary
*.distcp binary
*.gz binary
*.jpg binary
*.npy binary
*.pkl binary
*.png binary
*.pt binary
*.safetensors binary
tests/*/fixtures/** -text
tests/fuzz/corpus/** -text -diff
bench/RESULTS.md linguist-generated
docs/migration.md linguist-generated
docs/pictures/*.svg linguist-generated
"""


def attributes(names):
    """.gitattributes: how Git treats files, and what reviews need not show."""
    return f"# Written by tools/apigen.\n{ATTRIBUTES}" + "".join(f"{name} linguist-generated\n" for name in sorted(names))


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        print("usage: python3 tools/apigen SOURCE_ROOT [--check]", file=sys.stderr)
        return 2
    try:
        import parse
        import yaml  # noqa: F401 (languages.py)
    except ImportError:
        print("skipped: no libclang or PyYAML for this Python; tools/setup.sh --develop installs it into build/deps/python")
        return 77
    root = pathlib.Path(sys.argv[1])
    path = root / "include/accel.h"
    try:
        api = parse.describe(path)
        for part in GENERATED_PARTS:
            file = root / part.HEADER
            content = licence.named(file, part.header(api))
            if file.is_file() and file.read_text() == content:
                continue
            if "--check" in sys.argv:
                print(f"{file} is old; run python3 tools/apigen and commit the result")
                return 1
            file.write_text(content)
            print(f"wrote {file}")
            api = parse.describe(path)
    except parse.HeaderError as error:
        print(error)
        return 1
    breaches = list(lint.lint(api))
    print("".join(f"include/{breach}\n" for breach in breaches), end="")
    if breaches:
        return 1
    different = {root / path: content for path, content in outputs(root, api).items()
                 if not (root / path).is_file() or (root / path).read_text() != content}
    for path, content in different.items():
        if "--check" in sys.argv:
            print(f"{path} is not what include/accel.h gives; run python3 tools/apigen and commit the result")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            print(f"wrote {path}")
    return 1 if different and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
