"""How the parameters and results of a C function look in C++: what include/accel.hpp takes and returns."""

import re

import ctype

INTEGERS = ("int32_t", "int64_t", "uint32_t", "uint64_t", "size_t")
WORDS = {"and", "bool", "default", "delete", "export", "new", "operator", "or", "register", "template", "union", "xor"}
UNTYPED = ("void", *ctype.FOREIGN)


class Unsupported(Exception):
    """A function of a shape that has no rule here."""

    def __init__(self, what):
        super().__init__(f"{what} has no rule in tools/apigen/cpp_types.py")


def camel(name):
    return "".join(word.capitalize() for word in re.sub(r"^accel_|_t$", "", name).split("_"))


def identifier(name):
    return f"{name}_" if name in WORDS else name


def plain(spelling):
    """A C type in C++'s spelling: the star stands by the type."""
    return re.sub(r"\s*\*", "*", re.sub(rf"\b({'|'.join(INTEGERS)})\b", r"std::\1", spelling))


def base_of(kind):
    return kind["base"].removeprefix("struct ")


def is_truth(kind, doc):
    """C has no truths here: an int32_t is one when its text begins with what 1 means."""
    return kind["base"] == "int32_t" and re.match(r"1\b", doc) is not None


class Types:
    """The names that the C++ layer has for the types of the C API."""

    def __init__(self, api, template):
        self.handles = {handle["name"]: camel(handle["name"]) for handle in api["handles"]}
        self.options = {struct["name"]: camel(struct["name"]) for struct in api["structs"] if struct["init_function"]}
        self.all_callbacks = {callback["name"] for callback in api["callbacks"]}
        self.callbacks = {name: camel(name) for name in self.all_callbacks if f"using {camel(name)} =" in template}

    def is_output(self, parameter):
        """In-place arguments are handles like others; what is written through a pointer is returned."""
        kind = parameter["type"]
        return parameter["direction"] != "in" and not (base_of(kind) in self.handles and kind["pointers"] == 1)

    def parameter(self, parameter):
        """The C++ type of an input, and the C argument that is made of it."""
        kind, name, nullable = parameter["type"], identifier(parameter["name"]), parameter["nullable"]
        base, pointers = base_of(kind), kind["pointers"]
        if parameter["length"]:
            return self.array(base, pointers, name)
        if pointers == 0 and base not in self.all_callbacks:
            return ("bool" if is_truth(kind, parameter["doc"]) else plain(base)), name
        if pointers == 1 and base in self.handles:
            return f"const {self.handles[base]}&", f"{name}.get()"
        if pointers == 1 and base == "accel_value_t" and kind["const"]:
            return "const Value&", f"detail::unless_none({name})" if nullable else f"{name}.get()"
        if pointers == 1 and base in self.options and kind["const"]:
            return f"const {self.options[base]}&", f"&{name}"
        if pointers == 1 and base == "char":
            return ("const char*", name) if nullable else ("const std::string&", f"{name}.c_str()")
        if pointers == 1 and base in UNTYPED:
            return plain(kind["c"]), name
        raise Unsupported(f"a parameter of type {kind['c']}")

    def array(self, base, pointers, name):
        if pointers == 1 and base == "accel_value_t":
            return "const std::vector<Value>&", f"detail::borrowed({name}).data()"
        if pointers == 2 and base in self.handles:
            return f"const std::vector<{self.handles[base]}>&", f"detail::borrowed({name}).data()"
        if pointers == 2 and base == "char":
            return "const std::vector<std::string>&", f"detail::borrowed({name}).data()"
        if pointers == 1 and base == "void":
            return "std::string_view", f"{name}.data()"
        if pointers == 1:
            return f"const std::vector<{plain(base)}>&", f"{name}.data()"
        raise Unsupported(f"an array of {base}")

    def callback(self, parameter):
        """The C++ type of a callback, and the three C arguments: function, user_data, destroy."""
        base, name = parameter["type"]["base"], parameter["name"]
        if base not in self.callbacks:
            raise Unsupported(f"the callback {base}")
        dropped = f"detail::drop<{self.callbacks[base]}>"
        if not parameter["nullable"]:
            return self.callbacks[base], ["detail::run", f"detail::keep(std::move({name}))", dropped]
        # Not moved: the two arguments that ask whether it is empty are evaluated in any order.
        function = f"{name} ? static_cast<{base}>(detail::run) : nullptr"
        return self.callbacks[base], [function, f"{name} ? detail::keep({name}) : nullptr", dropped]

    def output(self, parameter):
        """The C++ type of an output, the variable that the C function fills in, the C argument, and the result."""
        kind, name = parameter["type"], identifier(parameter["name"])
        base, pointers = base_of(kind), kind["pointers"]
        if parameter["length"]:
            raise Unsupported("an array as output")
        if pointers == 2 and base in self.handles:
            return self.handles[base], f"{self.handles[base]} {name};", f"{name}.put()", name
        if pointers == 1 and base == "accel_value_t":
            return "Value", f"Value {name};", f"{name}.put()", name
        if pointers == 1 and base == "accel_buffer_t":
            return "std::string", f"detail::Buffer {name};", f"{name}.put()", f"{name}.string()"
        if pointers == 2 and base not in UNTYPED:
            raise Unsupported(f"a borrowed array of {base}")
        target = plain(kind["c"]).removesuffix("*")
        initial = "nullptr" if pointers == 2 else "{}" if base == "accel_device_t" else "0"
        if is_truth(kind, parameter["doc"]):
            return "bool", f"{target} {name} = 0;", f"&{name}", f"{name} != 0"
        return target, f"{target} {name} = {initial};", f"&{name}", name
