"""include/accel/options_init.h: the macros and functions with which every field of an options struct is unset.

The functions are defined there, so that a program unsets the struct that it was compiled with: a newer library's may be longer.
"""

import pathlib

import option

HEADER = "include/accel/options_init.h"
HEAD = pathlib.Path(__file__).parent / "options_init.h.in"
UNSET = {"int32_t": "ACCEL_UNSET", "int64_t": "ACCEL_UNSET_INT64", "double": "ACCEL_UNSET_DOUBLE"}
WIDTH = 118


def unset(struct, field, bases):
    base = field["type"]["base"]
    if field["name"] == "struct_size":
        return f"sizeof({struct['name']})"
    if field["name"] == "reserved":
        return "0"
    return "NULL" if field["type"]["pointers"] else UNSET[bases.get(base, base)]


def macro(struct, bases):
    """#define ACCEL_X_OPTIONS_INIT {...}, broken before it is too long."""
    name = struct["name"].removesuffix("_t").upper() + "_INIT"
    lines = [f"#define {name}", "  {"]
    for value in (unset(struct, field, bases) for field in struct["fields"]):
        if len(lines[-1]) + len(value) + 3 > WIDTH:
            lines.append("   ")
        lines[-1] += f"{value}, "
    lines[-1] = lines[-1].removesuffix(", ") + "}"
    return " \\\n".join(line.rstrip() for line in lines) + "\n"


def function(struct):
    name = struct["name"]
    return ("/** Marks every field as unset.\n * @param options The struct.\n * @threads any */\n"
            f"ACCEL_INLINE(0, 1) void {name.removesuffix('_t')}_init({name} *options) {{\n"
            f"  const {name} unset = {name.removesuffix('_t').upper()}_INIT;\n"
            "  if (options != NULL) *options = unset;\n}\n\n")


def header(api):
    bases = {alias["name"]: alias["type"] for alias in api["aliases"]}
    return HEAD.read_text() + "".join(macro(struct, bases) + function(struct) for struct in api["structs"] if option.is_options(struct)).rstrip("\n") + "\n"
