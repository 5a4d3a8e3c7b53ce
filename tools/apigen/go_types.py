# SPDX-License-Identifier: Apache-2.0
"""The names and types that Go has for those of the C API, and its comments."""

import re
import textwrap

import function_shape
from function_shape import Unsupported, is_truth

NUMBERS = {"int32_t": "int32", "uint32_t": "uint32", "int64_t": "int64", "size_t": "int", "double": "float64"}
INITIALISMS = {"cpu": "CPU", "csv": "CSV", "id": "ID", "io": "IO", "ip": "IP", "json": "JSON", "lr": "LR", "rng": "RNG", "sgd": "SGD",
               "ddp": "DDP", "gpu": "GPU"}
# What has another meaning in the body of a function.
TAKEN = {"any", "bool", "code", "count", "default", "err", "error", "failure", "first", "flag", "func", "given", "import", "interface", "len",
         "map", "option", "package", "range", "runtime", "select", "status", "string", "text", "type", "var"}


def exported(name):
    """accel_tensor_from_data -> TensorFromData"""
    words = re.sub(r"^accel_|_(t|fn)$", "", name, flags=re.IGNORECASE).lower().split("_")
    return "".join(INITIALISMS.get(word, word.capitalize()) for word in words)


def local(name):
    name = exported(name)
    name = re.sub(r"^[A-Z]+(?=[A-Z][a-z]|$)|^[A-Z]", lambda found: found.group().lower(), name)
    return f"{name}_" if name in TAKEN else name


def comment(name, function, call=""):
    """The text of a function or callback; what its parameters mean stands below."""
    lines = [f"{name} {call}{function['summary']} {function['description']}".strip()]
    hidden = {"user_data", "destroy"} | {parameter["length"] for parameter in function["parameters"]}
    listed = [f"{local(parameter['name'])}: {parameter['doc']}" for parameter in function["parameters"]
              if parameter["doc"] and parameter["name"] not in hidden and parameter["direction"] == "in"]
    text = textwrap.fill(lines[0], 118, initial_indent="// ", subsequent_indent="// ") + "\n"
    if listed:
        text += "//\n" + "".join(textwrap.fill(line, 118, initial_indent="//   - ", subsequent_indent="//     ") + "\n" for line in listed)
    if function["returns"]["doc"]:
        text += "//\n" + textwrap.fill(f"Returns: {function['returns']['doc']}", 118, initial_indent="// ", subsequent_indent="// ") + "\n"
    return text


class Api(function_shape.Api):
    def __init__(self, api):
        super().__init__(api, exported, ("accel_error_t",))

    def plain(self, kind, doc):
        """The Go type of a number, and how Go's becomes C's and the other way round."""
        base = kind["base"]
        if base == "accel_device_t":
            return "Device", "{}.c()", "Device{{int32({0}._type), int32({0}.index)}}"
        if is_truth(kind, doc):
            return "bool", "flag({})", "{} == 1"
        if base in self.aliases or base in NUMBERS:
            name = exported(base) if base in self.aliases else NUMBERS[base]
            return name, f"C.{base}({{}})", f"{name}({{}})"
        raise Unsupported(kind["c"])
