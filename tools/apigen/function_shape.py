# SPDX-License-Identifier: Apache-2.0
"""What each parameter of a C function is, for the back ends that make a language's own functions of them."""

import re

import ctype

BY_NAME = {"user_data": "user_data", "destroy": "destroy", "out_n_results": "n_results", "max_results": "room"}
INPUTS = {("char", 1): "text", ("accel_value_t", 1): "value", ("void", 1): "address", ("accel_device_t", 1): "device"}
ARRAYS = {("char", 2): "texts", ("accel_value_t", 1): "values", ("void", 1): "bytes"}
OUTPUTS = {("accel_scope_t", 2): "scope", ("accel_value_t", 1): "value", ("accel_buffer_t", 1): "buffer", ("int64_t", 2): "dimensions",
           ("void", 2): "address"}
NUMBERS = ("int32_t", "uint32_t", "int64_t", "size_t", "double")


class Unsupported(Exception):
    """A function of a shape that has no rule here."""

    def __init__(self, what):
        super().__init__(f"{what} has no rule in tools/apigen")


class Api:
    """The description with what a language calls the objects and structs of options in it; `called` makes a name of C's."""

    def __init__(self, api, called, skipped=()):
        self.api = api
        self.handles = {handle["name"]: called(handle["name"]) for handle in api["handles"] if handle["name"] not in skipped}
        self.options = {struct["name"]: called(struct["name"]) for struct in api["structs"] if struct["init_macro"] and struct["name"] not in skipped}
        self.aliases = {alias["name"]: alias["type"] for alias in api["aliases"]}
        self.callbacks = {callback["name"]: callback for callback in api["callbacks"]}
        self.functions = {function["name"]: function for function in api["functions"]}

    def callback_parameters(self, function):
        return [parameter for parameter in function["parameters"]
                if parameter["type"]["base"] in self.callbacks and parameter["type"]["base"] != "accel_destroy_fn"]


def base_of(kind):
    return kind["base"].removeprefix("struct ")


def is_of_values(function):
    """Whether it makes a value or takes one apart, where a language has its own lists, maps and numbers for them."""
    name = function["name"]
    return function["inline"] or name.startswith("accel_value_") and name not in ("accel_value_to_json", "accel_value_from_json", "accel_value_equal")


def made_by_themselves(api):
    """The functions that every language has as the life of its objects and of its options."""
    return {handle[end] for handle in api["handles"] for end in ("retain", "release")}


def is_truth(kind, doc):
    """C has no truths here: an int32_t is one when its text begins with what 1 means."""
    return kind["base"] == "int32_t" and re.match(r"1\b", doc) is not None


def roles(function, known):
    """(parameter, role, what is counted) of each. `known` has the names of the handles, options and callbacks.

    Inputs: handle, handles, text, texts, value, values, options, callback, bytes, numbers, device, address (of what the header
    does not describe), number (of any kind). Outputs: out_handle, out_value, out_values, out_buffer, out_scope,
    out_number, out_address, out_dimensions: an array that belongs to the object. The others serve these: length counts the arrays of
    the third item, room and n_results count results, user_data and destroy belong to callbacks. A shape without a rule raises
    Unsupported."""
    arrays = {}
    for parameter in function["parameters"]:
        arrays.setdefault(parameter["length"], []).append(parameter)
    for parameter in function["parameters"]:
        counted = arrays.get(parameter["name"], [])
        yield parameter, BY_NAME.get(parameter["name"]) or ("length" if counted else role_of(parameter, known)), counted


def role_of(parameter, known):
    kind = parameter["type"]
    base, shape = base_of(kind), (base_of(kind), kind["pointers"])
    is_handle = base in known.handles
    if parameter["direction"] != "in" and not (is_handle and kind["pointers"] == 1) and not (parameter["direction"] == "inout" and parameter["length"]):
        return output_of(parameter, shape, is_handle)
    if parameter["length"]:
        role = "handles" if shape == (base, 2) and is_handle else "numbers" if shape == (base, 1) and base in NUMBERS else ARRAYS.get(shape)
    elif base in known.callbacks:
        role = "callback"
    elif kind["pointers"] == 1:
        role = "handle" if is_handle else "options" if base in known.options else "address" if base in ctype.FOREIGN else INPUTS.get(shape)
    else:
        role = None if kind["pointers"] else "number"
    if not role:
        raise Unsupported(kind["c"])
    return role


def output_of(parameter, shape, is_handle):
    base, pointers = shape
    if parameter["length"]:
        role = "values" if parameter["length"] == "max_results" else None
    elif pointers == 2 and base in ctype.FOREIGN:
        role = "address"
    else:
        role = OUTPUTS.get(shape) or ("handle" if pointers == 2 and is_handle else "number" if pointers == 1 else None)
    if not role:
        raise Unsupported("an array as output" if parameter["length"] else parameter["type"]["c"])
    return f"out_{role}"
