# SPDX-License-Identifier: Apache-2.0
"""Checks a description of the header against docs/conventions.md. Each finding says where, which rule, and how to do it."""

import re

import option

FUNCTION_NAME = re.compile(r"^accel(_[a-z0-9]+)+$")
TYPE_NAME = re.compile(r"^accel(_[a-z0-9]+)+_(t|fn)$")
CONSTANT_NAME = re.compile(r"^ACCEL(_[A-Z0-9]+)+$")
SENTINEL = {"int32_t": "ACCEL_UNSET", "int64_t": "ACCEL_UNSET_INT64", "double": "ACCEL_UNSET_DOUBLE"}
THREADS = ("any", "object", "collective", "thread")
NEVER_RELEASED = ("accel_op_t",)  # operators are interned

HOW_TO = {
    "name": "ACCEL_SINCE(0, 1) ... accel_<verb>(accel_state_t *state, ...) or accel_<object>_<verb>(accel_<object>_t *...)",
    "ownership": "accel_tensor_t *ACCEL_OWNED *out, or const char *ACCEL_BORROWED *out",
    "options": "typedef struct accel_x_options { size_t struct_size; int32_t field; } accel_x_options_t; with "
               "ACCEL_X_OPTIONS_INIT {sizeof(accel_x_options_t), ACCEL_UNSET}",
    "option": option.FORM,
    "padding": "order the fields by size, or fill the gap with `int32_t reserved; /* 0 */`",
    "release": "ACCEL_SINCE(0, 1) void accel_x_release(accel_x_t *ACCEL_NULLABLE x);",
    "callback": "accel_x_fn x, void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy",
    "by value": "int32_t with ACCEL_* constants for enumerations and flags; const accel_x_t * for structs",
    "order": "self, inputs, options, outputs: accel_x(accel_state_t *state, const accel_value_t *value, accel_value_t *out)",
    "array": "@param items [n_items] The values.",
    "documentation": "/** One sentence. @param name Meaning. @return ACCEL_OK; NOT_FOUND when ... @threads object, waits */",
    "since": "ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_x(...);",
}


def lint(api):
    """Yields one line for each breach."""
    handles = {handle["name"] for handle in api["handles"]}
    structs = {struct["name"]: struct for struct in api["structs"]}
    callbacks = {callback["name"] for callback in api["callbacks"]}
    for rule, line, message in [*names(api), *(("option", *wrong) for wrong in api["wrong_options"]), *handle_rules(api), *struct_rules(api),
                                *(found for callback in api["callbacks"] for found in callback_rules(callback)),
                                *(found for function in api["functions"]
                                  for found in function_rules(function, handles, structs, callbacks))]:
        yield f"{api['places'][line - 1]}: {rule}: {message}; for example {HOW_TO[rule]}"


def names(api):
    for constant in api["constants"]:
        if not CONSTANT_NAME.match(constant["name"]):
            yield "name", constant["line"], f"{constant['name']} is not an ACCEL_UPPER_CASE name"
    for kind in ("aliases", "handles", "structs", "callbacks"):
        for entry in api[kind]:
            if not TYPE_NAME.match(entry["name"]):
                yield "name", entry["line"], f"{entry['name']} is not an accel_<thing>_t or accel_<thing>_fn"
    for function in api["functions"]:
        if not FUNCTION_NAME.match(function["name"]):
            yield "name", function["line"], f"{function['name']} does not begin with accel_"


def handle_rules(api):
    functions = {function["name"]: function for function in api["functions"]}
    for handle in api["handles"]:
        name = handle["name"]
        if not handle["doc"]:
            yield "documentation", handle["line"], f"{name} has no comment that says what it is"
        if name in NEVER_RELEASED:
            continue
        ends = [function for function in functions.values() if function["name"].endswith("_release")
                and any(parameter["type"]["base"] == name for parameter in function["parameters"])]
        if len(ends) != 1:
            yield "release", handle["line"], f"{name} has {len(ends)} _release functions, expected 1"
        for end in ends:
            if end["returns"]["type"]["c"] != "void" or not end["parameters"][0]["nullable"]:
                yield "release", end["line"], f"{end['name']} must return nothing and take NULL"


# Structs that stay as they are for ever.
CLOSED = ("accel_buffer_t", "accel_bytes_t", "accel_device_t", "accel_value_t")


def struct_rules(api):
    for struct in api["structs"]:
        name, line, fields = struct["name"], struct["line"], struct["fields"]
        if not struct["doc"]:
            yield "documentation", line, f"{name} has no comment that says what it is"
        end = 0
        for field in fields:
            if field["offset"] != end:
                yield "padding", line, f"{name} has {field['offset'] - end} unnamed bytes before {field['name']}"
            end = field["offset"] + field["size"]
        if end != struct["size"]:
            yield "padding", line, f"{name} ends with {struct['size'] - end} unnamed bytes"
        if not option.is_options(struct):
            if name not in CLOSED:
                yield "options", line, f"{name} does not begin with size_t struct_size, so it could never get another field"
            continue
        if fields[0]["name"] != "struct_size" or fields[0]["type"]["c"] != "size_t":
            yield "options", line, f"the first field of {name} is {fields[0]['name']}, expected size_t struct_size"
        if struct["init_macro"] is None:
            yield "options", line, f"{name} lacks its INIT macro"
            continue
        for field in fields[1:]:
            kind = field["type"]
            expected = "0" if field["name"] == "reserved" else "NULL" if kind["pointers"] else SENTINEL.get(
                alias_of(api, kind["base"]), None)
            if field["initial"] != expected:
                yield "options", line, f"{struct['init_macro']} sets {field['name']} to {field['initial']}, expected {expected}"


def alias_of(api, name):
    return next((alias["type"] for alias in api["aliases"] if alias["name"] == name), name)


def callback_rules(callback):
    name, line = callback["name"], callback["line"]
    if not callback["parameters"] or callback["parameters"][-1]["name"] != "user_data":
        yield "callback", line, f"the last parameter of {name} is not void *user_data"
    if not callback["summary"] or callback["threads"] not in ("any", "caller"):
        yield "documentation", line, f"{name} needs a sentence and `@threads caller` or `@threads any`"
    for parameter in callback["parameters"]:
        if not parameter["doc"]:
            yield "documentation", line, f"{name} does not explain {parameter['name']}"


def function_rules(function, handles, structs, callbacks):
    name, line, parameters = function["name"], function["line"], function["parameters"]
    if not function["since"]:
        yield "since", line, f"{name} has no ACCEL_SINCE"
    status = function["returns"]["type"]["c"] == "accel_status_t"
    if status and not function["nodiscard"] and name != "accel_error_code":
        yield "since", line, f"{name} returns a status without ACCEL_NODISCARD"
    yield from documentation_rules(function, status)
    kinds = [function["returns"]["type"]] + [parameter["type"] for parameter in parameters]
    for kind in kinds:
        is_struct = not kind["pointers"] and kind["base"] in structs and not function["inline"]  # which is compiled into the program
        if is_struct or kind["c"].startswith("enum ") or kind["base"] in ("bool", "_Bool"):
            yield "by value", line, f"{name} passes {kind['c']} by value"
    outputs_began = False
    for place, parameter in enumerate(parameters):
        kind = parameter["type"]
        is_output = parameter["direction"] == "out"
        if outputs_began and not is_output and not parameter["name"].startswith(("max_", "n_")):
            yield "order", line, f"{name} has the input {parameter['name']} behind an output"
        outputs_began = outputs_began or is_output
        if is_output and needs_word(kind, handles) and not parameter["ownership"]:
            yield "ownership", line, f"the output {parameter['name']} of {name} lacks ACCEL_OWNED or ACCEL_BORROWED"
        if kind["base"] in callbacks and kind["base"] != "accel_destroy_fn":
            rest = [other for other in parameters[place + 1:] if other["type"]["base"] not in callbacks
                    or other["type"]["base"] == "accel_destroy_fn"]
            if [other["name"] for other in rest[:2]] != ["user_data", "destroy"]:
                yield "callback", line, f"{parameter['name']} of {name} is not followed by user_data and destroy"
        if needs_length(parameter, handles, structs) and not parameter["length"]:
            yield "array", line, f"{parameter['name']} of {name} is an array, and its text does not begin with [length]"
        if parameter["length"] and parameter["length"] not in [other["name"] for other in parameters]:
            yield "array", line, f"the length {parameter['length']} of {parameter['name']} is not a parameter of {name}"


def needs_word(kind, handles):
    """Outputs that hand over something that lives: handles, values, buffers, text."""
    return kind["pointers"] > 1 or kind["base"] in ("accel_value_t", "accel_buffer_t")


def needs_length(parameter, handles, structs):
    """Pointers to numbers, lists of handles and lists of strings."""
    kind = parameter["type"]
    if parameter["direction"] != "in" or not kind["pointers"]:
        return False
    if kind["pointers"] == 2:
        return True
    return kind["base"] not in handles and kind["base"] not in structs and kind["base"] not in ("char", "void") \
        and not kind["base"].startswith("struct ")


def documentation_rules(function, status):
    name, line = function["name"], function["line"]
    if not function["summary"]:
        yield "documentation", line, f"{name} has no sentence that says what it does"
    given = [parameter["name"] for parameter in function["parameters"]]
    for parameter in function["parameters"]:
        if not parameter["doc"]:
            yield "documentation", line, f"{name} does not explain {parameter['name']}"
    for documented in function["documented"]:
        if documented not in given:
            yield "documentation", line, f"{name} explains {documented}, which is not a parameter"
    text = function["returns"]["doc"]
    if function["returns"]["type"]["c"] != "void" and not text:
        yield "documentation", line, f"{name} has no @return"
    if status and not function["statuses"] and not re.search(r"\b(?:Same as|See) (accel_\w+\(\)|above|there)", text) and text != "Its status.":
        yield "documentation", line, f"the @return of {name} names no status"
    if "an error" in text:
        yield "documentation", line, f"the @return of {name} says `an error`; name the statuses"
    if function["threads"] not in THREADS:
        yield "documentation", line, f"{name} has no @threads with one of {', '.join(THREADS)}"
