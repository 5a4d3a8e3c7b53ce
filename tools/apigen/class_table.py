"""A table of how a language's package maps functions of the header, one per line:

    NAME = FUNCTION(PARAMETERS) | ARGUMENT = VALUE; ...

FUNCTION without the words that its section says; PARAMETERS in the language, with defaults, bound to those of C by their names
whatever their case; behind the bar values of C's arguments, or of fields of options, that are not one parameter."""

import configparser
import re

import function_shape

ROW = re.compile(r"([\w.!]+)(?: = (\w+))?\((.*?)\)(?: \| (.*))?")


class Row:
    def __init__(self, known, prefix, line):
        found = ROW.fullmatch(line)
        self.function = known.functions.get(prefix + (found[2] or found[1].lower())) if found else None
        if not self.function:
            raise SystemExit(f"a table of classes has {line!r}, expected NAME = FUNCTION(PARAMETERS) | ARGUMENT = VALUE; ... of a {prefix}FUNCTION")
        self.name, _, self.text, changed = found.groups()
        self.listed = [tuple(re.split(r"\s*=\s*", re.sub(r"::\S+", "", part), 1)) for part in re.split("[,;] ", self.text) if part]
        self.changed = dict(re.split(r"\s*=\s*", part, 1) for part in (changed or "").split("; ") if part)
        self.roles = list(function_shape.roles(self.function, known))

    def options(self):
        return next((parameter["type"]["base"] for parameter, role, _ in self.roles if role == "options"), None)

    def own(self, name):
        """The parameter (name, default) that a C name is bound to."""
        return next((part for part in self.listed if part[0].lower() == name), None)


def read(path, known):
    """(section, its rows) of a table"""
    table = configparser.ConfigParser(interpolation=None, delimiters="=")
    table.read_string(path.read_text())
    for section in map(table.__getitem__, table.sections()):
        yield section, [Row(known, section["prefix"], line) for line in section["rows"].strip().split("\n")]


def named_in(folder, pattern):
    """The functions that the sources by hand in a folder name."""
    files = [file for file in folder.rglob(pattern) if file.name not in ("LibAccel.jl", "capi.py") and file.parent.name != "generated"]
    return {word for file in files for word in re.findall(r"\baccel_\w+", file.read_text())}
