# SPDX-License-Identifier: Apache-2.0
"""How the parameters and results of a C function look in C++: what include/accel.hpp takes and returns."""

import re

from function_shape import Api, Unsupported, base_of, is_truth

INTEGERS = ("int32_t", "int64_t", "uint32_t", "uint64_t", "size_t")
WORDS = {"and", "bool", "default", "delete", "export", "new", "operator", "or", "register", "template", "union", "xor"}
# By role: the C++ type and the C argument; {1} is the type's name, {2} the type. Of outputs also the variable before, and the result.
BORROWED = "detail::borrowed({0}).data()"
INPUTS = {"handle": ("const {1}&", "{0}.get()"), "value": ("const Value&", "{0}.get()"), "options": ("const {1}&", "&{0}"), "address": ("{2}", "{0}"), "device": ("accel_device_t", "&{0}"),
          "text": ("const std::string&", "{0}.c_str()"), "texts": ("const std::vector<std::string>&", BORROWED), "bytes": ("std::string_view", "{0}.data()"),
          "values": ("const std::vector<Value>&", BORROWED), "handles": ("const std::vector<{1}>&", BORROWED),
          "numbers": ("const std::vector<{1}>&", "{0}.data()")}
NULLABLE = {"device": ("const accel_device_t*", "{0}"), "value": ("const Value&", "detail::unless_none({0})"), "text": ("const char*", "{0}")}
OUTPUTS = {"out_handle": ("{1}", "{1} {0};", "{0}.put()", "{0}"), "out_scope": ("{1}", "{1} {0};", "{0}.put()", "{0}"),
           "out_value": ("Value", "Value {0};", "{0}.put()", "{0}"),
           "out_buffer": ("std::string", "detail::Buffer {0};", "{0}.put()", "{0}.string()")}


def camel(name):
    return "".join(word.capitalize() for word in re.sub(r"^accel_|_t$", "", name).split("_"))


def identifier(name):
    return f"{name}_" if name in WORDS else name


def plain(spelling):
    """A C type in C++'s spelling: the star stands by the type."""
    return re.sub(r"\s*\*", "*", re.sub(rf"\b({'|'.join(INTEGERS)})\b", r"std::\1", spelling))


class Types(Api):
    """The names that the C++ layer has for the types of the C API."""

    def __init__(self, api, template):
        super().__init__(api, camel)
        self.known_callbacks = {name: camel(name) for name in self.callbacks if f"using {camel(name)} =" in template}

    def words(self, parameter):
        """What the rules are filled with: the name, the type's name, the type."""
        kind = parameter["type"]
        base = base_of(kind)
        return identifier(parameter["name"]), {**self.handles, **self.options}.get(base) or plain(base), plain(kind["c"])

    def parameter(self, parameter, role):
        """The C++ type of an input, and the C argument that is made of it."""
        rule = NULLABLE.get(role, INPUTS.get(role)) if parameter["nullable"] else INPUTS.get(role)
        if role == "number":
            rule = "bool" if is_truth(parameter["type"], parameter["doc"]) else "{1}", "{0}"
        return tuple(part.format(*self.words(parameter)) for part in rule)

    def callback(self, parameter):
        """The C++ type of a callback, and the three C arguments: function, user_data, destroy."""
        base, name = parameter["type"]["base"], parameter["name"]
        if base not in self.known_callbacks:
            raise Unsupported(f"the callback {base}")
        dropped = f"detail::drop<{self.known_callbacks[base]}>"
        if not parameter["nullable"]:
            return self.known_callbacks[base], "detail::run", f"detail::keep(std::move({name}))", dropped
        # Not moved: the two arguments that ask whether it is empty are evaluated in any order.
        function = f"{name} ? static_cast<{base}>(detail::run) : nullptr"
        return self.known_callbacks[base], function, f"{name} ? detail::keep({name}) : nullptr", dropped

    def output(self, parameter, role):
        """The C++ type of an output, the variable that the C function fills in, the C argument, and the result."""
        if role in OUTPUTS:
            return tuple(part.format(*self.words(parameter)) for part in OUTPUTS[role])
        kind, name = parameter["type"], identifier(parameter["name"])
        if role not in ("out_number", "out_address"):
            raise Unsupported(f"a borrowed array of {base_of(kind)}")
        target = plain(kind["c"]).removesuffix("*")
        initial = "nullptr" if kind["pointers"] == 2 else "{}" if kind["base"] == "accel_device_t" else "0"
        is_bool = is_truth(kind, parameter["doc"])
        return "bool" if is_bool else target, f"{target} {name} = {initial};", f"&{name}", f"{name} != 0" if is_bool else name
