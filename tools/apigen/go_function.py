# SPDX-License-Identifier: Apache-2.0
"""A function of the C API in Go."""

import re

from emit_cpp import INFORMATION, placed
from function_shape import base_of, roles
from go_types import NUMBERS, comment, exported, local

# By role: the Go type, what is made of it before the call, and C's argument. {0} is its name, {1} the type's in Go and {2} in C, {3} what
# stands for it in C's terms. What `given` makes is in C's memory; a `:= given` or `(&given)` before the call can fail.
TAKEN = {"handle": ("*{1}", "", "{0}.c()"), "callback": ("{1}Func", "", "flag({0} != nil)"), "text": ("string", "", "given.text({0})"),
         "texts": ("[]string", "", "given.texts({0})"), "value": ("any", "{3} := given.value({0})", "{3}"), "values": ("[]any", "{3} := given.all({0})", "{3}"),
         "options": ("*{1}", "{3} := {0}.c(&given)", "{3}"), "address": ("unsafe.Pointer", "", "(*C.struct_{2})({0})"), "device": ("Device", "{3} := {0}.c()", "&{3}"),
         "bytes": ("[]byte", "", "unsafe.Pointer(first({0}))"), "numbers": ("[]{1}", "", "(*C.{2})(first({0}))"),
         "handles": ("[]*{1}", "{3} := make([]*C.{2}, len({0}))\n\tfor i, one := range {0} {{\n\t\t{3}[i] = one.c()\n\t}}", "first({3})")}
NULLABLE = {"device": ("*Device", "", "{0}.pointer()"), "text": ("string", "", "given.nullable({0})"), "value": ("any", "{3} := given.optional({0})", "{3}")}
KEPT = ("handle", "handles", "options")
# The Go type of a result, and what C's variable {0} becomes; {2} is the object that is asked.
MADE = {"out_handle": ("*{1}", "new{1}({0})"), "out_value": ("any", "made(&{0})"), "out_buffer": ("string", "text(&{0})"),
        "out_dimensions": ("[]int64", "dimensions({2}, {0})"), "out_address": ("unsafe.Pointer", "unsafe.Pointer({0})")}
# Of results; destroy stands in the C form of the function.
COUNTS = {"room": ["C.size_t(len(results))"], "n_results": ["&nResults"], "destroy": []}


class Function:
    """A function in Go: what it takes and gives, and the lines of its body."""

    def __init__(self, api, function):
        self.api, self.function = api, function
        self.name, self.parameters = function["name"], function["parameters"]
        self.checks = function["returns"]["type"]["base"] == "accel_status_t" and function["returns"]["type"]["pointers"] == 0
        self.is_asked = bool(INFORMATION.intersection(function["statuses"]))
        self.taken, self.arguments, self.results, self.before, self.after, self.kept = [], [], [], [], [], []
        self.scope = None
        for parameter, role, counted in roles(function, api):
            if role in COUNTS:
                self.arguments += COUNTS[role]
            elif role == "length":
                self.add_length([local(array["name"]) for array in counted])
            elif role == "user_data":
                self.add_user_data()
            else:
                self.output(parameter, role) if role.startswith("out_") else self.add(parameter, role)
        self.can_refuse = any("given" in line for line in self.before)
        self.uses_given = self.can_refuse or any("given." in argument for argument in self.arguments)

    def add_length(self, items):
        self.before += [f"given.same(len({items[0]}), len({other}), \"{other}\")" for other in items[1:]]
        self.arguments.append(f"C.size_t(len({items[0]}))")

    def add_user_data(self):
        callbacks = [local(parameter["name"]) for parameter in self.api.callback_parameters(self.function)]
        self.taken += [] if callbacks else [("release", "func()")]
        self.arguments.append(f"kept({', '.join(callbacks or ['release'])})")

    def add(self, parameter, role):
        name, base = local(parameter["name"]), base_of(parameter["type"])
        go = {**self.api.handles, **self.api.options, **NUMBERS}.get(base) or exported(base)
        rule = (NULLABLE if parameter["nullable"] else TAKEN).get(role) or TAKEN.get(role)
        if role == "number":
            go, to_c, _ = self.api.plain(parameter["type"], parameter["doc"])
            rule = "{1}", "", to_c.replace("{}", "{0}")
        elif base == "void" and role == "address":
            rule = "unsafe.Pointer", "", "{0}"
        kind, before, argument = (part.format(name, go, base, f"c{exported(name)}") for part in rule)
        self.taken.append((name, kind))
        self.before += [before] if before else []
        self.arguments.append(argument)
        self.kept += [name] if role in KEPT else []

    def output(self, parameter, role):
        kind, name = parameter["type"], parameter["name"].removeprefix("out_")
        base, go, variable = base_of(kind), local(name), f"c{exported(name)}"
        if any(go == taken for taken, _ in self.taken):
            go = local(parameter["name"])
        if role == "out_values":
            self.before.append("var results [16]C.accel_value_t\n\tvar nResults C.size_t")
            self.arguments.append("&results[0]")
            self.results.append(("out", "[]any", "readAll(&results[0], nResults)"))
            self.after.append("for i := range results {\n\t\tC.accel_value_dispose(&results[i])\n\t}")
            return
        target = re.sub(r"^const |[* ]+$", "", kind["c"]).replace("struct ", "struct_")
        self.before.append(f"var {variable} {'unsafe.Pointer' if base == 'void' else '*' * (kind['pointers'] - 1) + 'C.' + target}")
        self.arguments.append(f"&{variable}")
        if role == "out_scope":
            self.scope = variable
        elif role == "out_number":
            go_type, _, from_c = self.api.plain(kind, parameter["doc"])
            self.results.append((go, go_type, from_c.format(variable)))
        else:
            made = ("unsafe.Pointer", "{0}") if base == "void" else MADE[role]
            self.results.append((go, *(part.format(variable, self.api.handles.get(base), local(self.parameters[0]["name"])) for part in made)))

    def call(self):
        """The call in C's terms, and what stands behind it."""
        arguments = self.arguments + (["&failure"] if self.checks else [])
        called = f"C.{'go_' if self.checks else ''}{self.name}({', '.join(arguments)})"
        keep = [f"runtime.KeepAlive({name})" for name in self.kept]
        if self.checks:
            begin = ["var failure C.go_failure", f"code := {called}", *keep]
            if not self.results and not self.is_asked:
                return begin, ["return status(code, failure)"]
            return begin, ["if err = status(code, failure); err != nil {\n\t\treturn\n\t}"]
        kind = self.function["returns"]["type"]
        base, begin = base_of(kind), [f"result := {called}", *keep]
        if kind["c"] == "void":
            return [called, *keep], []
        if kind["pointers"] == 1 and base in self.api.handles:
            return [*begin, "if result == nil {\n\t\treturn nil\n\t}"], [f"return new{self.api.handles[base]}(C.{base.removesuffix('_t')}_retain(result))"]
        if base == "accel_device_t":
            return begin, ["return pointedDevice(result)"]
        from_c = "C.GoString({})" if kind["pointers"] == 1 and base == "char" else self.api.plain(kind, self.function["returns"]["doc"])[2]
        return begin, [f"return {from_c.format('result')}"]

    def returned(self):
        kind = self.function["returns"]["type"]
        if self.scope:
            return " error"
        given = [f"{name} {go}" for name, go, _ in self.results] + ["ok bool"] * self.is_asked
        if self.checks:
            return f" ({', '.join([*given, 'err error'])})" if given else " error"
        if kind["c"] == "void":
            return f" ({', '.join(given)})" if given else ""
        base = base_of(kind)
        if kind["pointers"]:
            return " Device" if base == "accel_device_t" else f" *{self.api.handles[base]}" if base in self.api.handles else " string"
        return " " + self.api.plain(kind, self.function["returns"]["doc"])[0]

    def body(self):
        lines = ["var given arguments", "defer given.end()"] if self.uses_given else []
        lines += ["runtime.LockOSThread()", "defer runtime.UnlockOSThread()"] if self.scope else []
        lines += self.before
        if self.can_refuse:
            plain = self.returned() == " error"
            lines.append("if err := given.err; err != nil {\n\t\treturn err\n\t}" if plain else "if err = given.err; err != nil {\n\t\treturn\n\t}")
        begin, end = self.call()
        if self.scope:
            end = ["if err := status(code, failure); err != nil {\n\t\treturn err\n\t}", f"return inside({self.scope}, body)"]
        lines += begin + end
        if end and end[-1].startswith("return ") or not self.results and not self.checks:
            return lines
        lines += [f"{name} = {expression}" for name, _, expression in self.results] + self.after
        return [*lines, *["ok = code == C.ACCEL_OK"] * self.is_asked, "return"]

    def text(self):
        class_name, name, is_static = placed(self.function, self.api)
        taken, receiver = list(self.taken), ""
        if class_name and not is_static:
            (self_name, self_type), *taken = taken
            receiver = f"({self_name} {self_type}) "
            other = self.api.functions.get(f"accel_{name}", self.function)
            if other is not self.function and placed(other, self.api)[0] == class_name:
                name = self.name  # accel_state_describe() beside accel_describe(): one of them keeps its long name
        elif class_name:
            name = f"new_{class_name}" if name == "create" else self.name
        name = exported(name.removesuffix("_begin") if self.scope else name)
        name = re.sub("^New.*", lambda found: f"New{class_name}", name) if class_name and name.startswith("New") else name
        taken += [("body", "func(*Scope) error")] if self.scope else []
        listed = ", ".join(f"{name} {kind}" for name, kind in taken)
        body = "".join(f"\t{line}\n" for line in self.body())
        text = comment(name, self.function, f"is {self.name}. ")
        return f"{text}func {receiver}{name}({listed}){self.returned()} {{\n{body}}}\n"
