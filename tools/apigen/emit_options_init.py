# SPDX-License-Identifier: Apache-2.0
"""include/accel/options_init.h: the name of each options struct, and the macro with which every field of it is unset."""

import pathlib
import re

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


def name_macro(struct):
    """ACCEL_OPTIONS_ADAM of accel_adam_options_t."""
    return "ACCEL_OPTIONS_" + re.sub(r"^accel_|(_options)?_t$", "", struct["name"]).upper()


def header(api):
    bases = {alias["name"]: alias["type"] for alias in api["aliases"]}
    parts = (f'#define {name_macro(struct)} "{struct["name"]}"\n{macro(struct, bases)}' for struct in api["structs"] if option.is_options(struct))
    return HEAD.read_text() + "\n".join(parts)
