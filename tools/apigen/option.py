# SPDX-License-Identifier: Apache-2.0
"""What the comment of a field of an options struct says, in this form:

    double beta2; /* The decay of the second moment. In [0, 1). Variable ACCEL_BETA2. Default 0.999 */

A meaning in sentences; the interval that a number is in; the environment variable that is looked at when the field is unset;
the default: a number, a "text", the end of a constant's name, or behind a colon in words what the library finds by itself.
Behind a field that must be given stands Required. Readers, tables, tests and the bindings follow from it.
"""

import re

import emit_environment

SIZES = {"int32_t": "integer", "int64_t": "integer", "double": "number"}
INTERVAL = re.compile(r"(?:^|(?<=\. ))In ([\[(])(\S+), (\S+)([\])])\. ")
VARIABLE = re.compile(r"(?:^|(?<=\. ))Variable ([A-Z][A-Z0-9_]*)\. ")
END = re.compile(r"(?:^|(?<=\. ))(?:Default (?P<value>\S+)|Default: (?P<words>.+)|(?P<required>Required))$")
FORM = "/* Meaning. In [1, inf). Variable ACCEL_X. Default 1 */"


class OptionError(Exception):
    """What is wrong with the comment of a field: one line."""


def kind_of(field, choices):
    base, pointers = field["type"]["base"], field["type"]["pointers"]
    if pointers:
        return "text" if base == "char" else "object"
    if base == "accel_flag_t":
        return "flag"
    return "choice" if base in choices else SIZES.get(base)


def number_of(text, what):
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"{what} is {text}, expected a number") from None


def interval_of(opening, low, high, closing):
    """{low, high, open_low, open_high}"""
    ends = [number_of(end, "an end of the interval") for end in (low, high)]
    if not ends[0] < ends[1]:
        raise OptionError(f"the interval from {low} to {high} is empty")
    return {"low": low, "high": high, "open_low": opening == "(", "open_high": closing == ")"}


def is_within(value, interval):
    low, high = float(interval["low"]), float(interval["high"])
    return (value > low or value == low and not interval["open_low"]) and \
        (value < high or value == high and not interval["open_high"])


def default_of(value, kind, interval, constants):
    """The default as it stands in generated sources."""
    if kind == "flag" and value not in ("0", "1"):
        raise OptionError(f"the default of a flag is {value}, expected 0 or 1")
    if kind == "integer" and not re.fullmatch(r"-?\d+", value):
        raise OptionError(f"the default is {value}, expected a whole number")
    if kind in ("integer", "number") and not is_within(number_of(value, "the default"), interval):
        raise OptionError(f"the default {value} is not within the interval")
    if kind == "text" and not re.fullmatch(r'"[^"]*"', value):
        raise OptionError(f"the default {value} is not text in quotes")
    if kind == "choice":
        meant = [name for name in constants if name.endswith(f"_{value}")]
        if len(meant) != 1:
            raise OptionError(f"the default {value} is the end of {len(meant)} of {', '.join(constants)}")
        return meant[0]
    if kind == "object":
        raise OptionError(f"the default of a pointer is {value}, expected words behind a colon")
    return value


def read(field, choices):
    """{kind, meaning, interval, variable, default, default_words, required} of a field; `choices`: {type: names of its
    constants}."""
    text, kind = field["doc"], kind_of(field, choices)
    if kind is None:
        raise OptionError(f"{field['type']['c']} is not a type of options")
    end = END.search(text)
    if not end:
        raise OptionError("it does not end with a default")
    text = text[:end.start()]
    variables, intervals = VARIABLE.findall(text), INTERVAL.findall(text)
    rest = INTERVAL.search(text) or VARIABLE.search(text)
    meaning = text[:rest.start() if rest else None].rstrip()
    if len(variables) > 1 or len(intervals) > 1:
        raise OptionError("it has two variables or two intervals")
    if (kind in ("integer", "number")) != bool(intervals):
        raise OptionError("a number needs its interval" if not intervals else f"a {kind} has no interval")
    if variables and not text.endswith(f"Variable {variables[0]}. "):
        raise OptionError("the variable stands right before the default")
    if re.search(r"(?i)(?:^|\. )variable\b", VARIABLE.sub("", text)):
        raise OptionError("it names no variable; a name has capital letters, digits and _, and a full stop behind it")
    interval = interval_of(*intervals[0]) if intervals else None
    constants = choices.get(field["type"]["base"], [])
    value = end["value"] and default_of(end["value"], kind, interval, constants)
    return {"kind": kind, "meaning": meaning, "interval": interval, "variable": variables[0] if variables else None,
            "default": value, "default_words": end["words"], "required": bool(end["required"]),
            "constants": constants if kind == "choice" else []}


def is_options(struct):
    """Whether it may grow. Those of these names must begin with their size, which the lint checks."""
    return bool(re.search(r"_(options|config)_t$", struct["name"])) or struct["fields"][0]["name"] == "struct_size"


def choices_of(api):
    """{type: [names of its constants]}"""
    found = {}
    for constant in api["constants"]:
        found.setdefault(constant["type"], []).append(constant["name"])
    return {name: constants for name, constants in found.items()
            if name.startswith("accel_") and name not in ("accel_status_t", "accel_flag_t")}


def used_choices(structs):
    """{type: [names of its constants]} of those that are fields of structs."""
    return {field["type"]["base"]: field["option"]["constants"] for struct in structs for field in struct["fields"]
            if field.get("option", {}).get("kind") == "choice"}


def describe(api):
    """Adds to each field of an options struct what its comment says; yields (line, message) for those that say it wrongly."""
    choices, places = choices_of(api), dict.fromkeys(emit_environment.other_variables(), "environment.md.in")
    for struct in filter(is_options, api["structs"]):
        for field in struct["fields"][1:]:
            if field["name"] == "reserved":
                continue
            try:
                field["option"] = read(field, choices)
            except OptionError as error:
                yield field["line"], f"the comment of {struct['name']}.{field['name']} is wrong: {error}"
                continue
            variable = field["option"]["variable"]
            if variable in places:
                yield field["line"], f"{struct['name']}.{field['name']} has the variable {variable} of {places[variable]}"
            places.setdefault(variable, f"{struct['name']}.{field['name']}") if variable else None
