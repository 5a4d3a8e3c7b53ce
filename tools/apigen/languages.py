# SPDX-License-Identifier: Apache-2.0
"""The tables of api/: languages.yaml says what the header does not of functions in a language, python.yaml what Python's package has besides."""

import re

import function_shape

TABLE, PYTHON = "api/languages.yaml", "api/python.yaml"
ROW = re.compile(r"([\w.!]+)(?: = (\w+))?\((.*?)\)(?: \| (.*))?")


def read(root, part, table=TABLE):
    """A part of a table: that of a language."""
    import yaml  # here, since without it __main__.py says how to get it

    return yaml.safe_load((root / table).read_text())[part]


class Row:
    """NAME = FUNCTION(PARAMETERS) | ARGUMENT = VALUE; ..., which the head of the table explains."""

    def __init__(self, known, prefix, line):
        found = ROW.fullmatch(line)
        self.function = known.functions.get(prefix + (found[2] or found[1].lower())) if found else None
        if not self.function:
            raise SystemExit(f"{TABLE} has {line!r}, expected NAME = FUNCTION(PARAMETERS) | ARGUMENT = VALUE; ... of a {prefix}FUNCTION")
        self.name, _, self.text, changed = found.groups()
        self.listed = [tuple(re.split(r"\s*=\s*", re.sub(r"::\S+", "", part), 1)) for part in re.split("[,;] ", self.text) if part]
        self.changed = dict(re.split(r"\s*=\s*", part, 1) for part in (changed or "").split("; ") if part)
        self.roles = list(function_shape.roles(self.function, known))

    def options(self):
        return next((parameter["type"]["base"] for parameter, role, _ in self.roles if role == "options"), None)

    def own(self, name):
        """The parameter (name, default) that a C name is bound to."""
        return next((part for part in self.listed if part[0].lower() == name), None)


def rows(section, known):
    """The rows of a section."""
    return [Row(known, section["prefix"], line) for line in section["rows"].splitlines()]


def named_in(folder, pattern):
    """The functions that the sources by hand in a folder name."""
    files = [file for file in folder.rglob(pattern) if file.name not in ("LibAccel.jl", "capi.py") and file.parent.name != "generated"]
    return {word for file in files for word in re.findall(r"\baccel_\w+", file.read_text())}
