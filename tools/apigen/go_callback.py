# SPDX-License-Identifier: Apache-2.0
"""A callback of the C API in Go: C calls a C function of the callback's type, that an exported Go function, that the program's."""

import ctype
from emit_swig import place_of
from function_shape import roles
from go_types import NUMBERS, comment, exported, local

# By role: the Go type of an argument, and what is made of C's; {1} is the Go name of its type, {2} the length, {3} the beginning of C's functions.
GIVEN = {"handle": ("*{1}", "new{1}(C.{3}_retain({0}))"), "text": ("string", "C.GoString({0})"), "value": ("any", "read({0})"),
         "values": ("[]any", "readAll({0}, {2})"), "numbers": ("[]{1}", "unsafe.Slice((*{1})({0}), {2})")}


class Callback:
    """A callback: its Go type, the exported function that C calls, and what C knows of that."""

    def __init__(self, known, callback):
        self.callback, self.known = callback, known
        self.name = exported(callback["name"])
        self.parameters = callback["parameters"][:-1]
        self.returns = callback["returns"]["type"]["c"]

    def outputs(self):
        return [parameter for parameter in self.parameters if parameter["direction"] == "out"]

    def inputs(self):
        """(name, Go type, what C gave as that) of each."""
        for parameter, role, _ in roles(self.callback, self.known):
            kind, name = parameter["type"], local(parameter["name"])
            words = name, {**self.known.handles, **NUMBERS}.get(kind["base"]), local(parameter["length"] or ""), kind["base"].removesuffix("_t")
            if role == "number":
                go, _, from_c = self.known.plain(kind, parameter["doc"])
                yield name, go, from_c.format(name)
            elif role in GIVEN:
                yield (name, *(part.format(*words) for part in GIVEN[role]))

    def go_type(self):
        inputs = ", ".join(f"{name} {kind}" for name, kind, _ in self.inputs())
        given = [f"*{self.known.handles[output['type']['base']]}" if output["type"]["pointers"] == 2 else "any" for output in self.outputs()]
        given += {"double": ["float64"], "int64_t": ["int64"]}.get(self.returns, [])
        given += [] if self.returns == "void" else ["error"]
        results = f" ({', '.join(given)})" if len(given) > 1 else f" {given[0]}" if given else ""
        return comment(f"{self.name}Func:", self.callback) + f"type {self.name}Func func({inputs}){results}\n"

    def function(self, functions):
        kinds = ", ".join(f"{local(p['name'])} {'*' * p['type']['pointers']}C.{p['type']['base']}" for p in self.parameters)
        call = f"callable[{self.name}Func](userData, {place_of(self.callback['name'], functions)})({', '.join(given for _, _, given in self.inputs())})"
        head = f"//export go{self.name}\nfunc go{self.name}({kinds}{', ' if kinds else ''}userData C.uintptr_t)"
        if self.returns == "void":
            return f"{head} {{\n\t_ = protected(func() error {{\n\t\t{call}\n\t\treturn nil\n\t}})\n}}\n"
        outputs = self.outputs()
        number = self.returns in ("double", "int64_t")
        made = [local(output["name"].removeprefix("out_")) + "Made" for output in outputs] + (["number"] if number else [])
        lines = [f"{', '.join(made + ['err'])} := {call}"] if made else [f"return {call}"]
        for output, name in zip(outputs, made):
            target = local(output["name"])
            lines.append("if err != nil {\n\t\t\treturn err\n\t\t}")
            if output["type"]["pointers"] == 2:
                base = output["type"]["base"]
                lines.append(f"if {name} != nil {{\n\t\t\t*{target} = C.{base.removesuffix('_t')}_retain({name}.c())\n\t\t}}\n"
                             f"\t\truntime.KeepAlive({name})\n\t\treturn nil")
            else:
                lines.append(f"return fill({name}, {target})")
        if number:
            lines += [f"result = C.{self.returns}(number)", "return err"]
        inner = "".join(f"\t\t{line}\n" for line in lines)
        caught = f"protected(func() error {{\n{inner}\t}})"
        if not number:
            return f"{head} C.accel_status_t {{\n\treturn raise({caught})\n}}\n"
        end = "refused(err)\n\t\tresult = C.double(math.NaN())" if self.returns == "double" else "result = C.int64_t(refused(err))"
        return f"{head} (result C.{self.returns}) {{\n\tif err := {caught}; err != nil {{\n\t\t{end}\n\t}}\n\treturn result\n}}\n"

    def c(self):
        """The declaration of the exported function, and the C function of the callback's type that calls it."""
        plain = [dict(p["type"], c=p["type"]["c"].replace("const ", "")) for p in self.parameters]
        declared = ", ".join([*(ctype.typed(kind, p["name"]) for kind, p in zip(plain, self.parameters)), "uintptr_t user_data"])
        taken = ", ".join(ctype.typed(p["type"], p["name"]) for p in self.callback["parameters"])
        passed = ", ".join([*(f"({kind['c']}){p['name']}" if p["type"]["const"] else p["name"] for kind, p in zip(plain, self.parameters)),
                            "(uintptr_t)user_data"])
        own = trampoline(self.callback["name"])
        return (f"extern {self.returns} go{self.name}({declared});\nstatic inline {self.returns} {own}({taken}) {{\n"
                f"  {'' if self.returns == 'void' else 'return '}go{self.name}({passed});\n}}\n")


def trampoline(callback):
    return "go_" + callback.removeprefix("accel_").removesuffix("_fn")
