"""A function of the C API in Go."""

import re

from emit_cpp import INFORMATION, placed
from function_shape import base_of, roles
from go_types import NUMBERS, comment, exported, local


# Of results; destroy stands in the C form of the function.
COUNTS = {"room": ["C.size_t(len(results))"], "n_results": ["&nResults"], "destroy": []}


class Function:
    """A function in Go: what it takes and gives, and the lines of its body."""

    def __init__(self, api, function):
        self.api, self.function = api, function
        self.name, self.parameters = function["name"], function["parameters"]
        self.checks = function["returns"]["type"]["base"] == "accel_status_t" and function["returns"]["type"]["pointers"] == 0
        self.taken, self.arguments, self.results, self.before, self.after, self.kept = [], [], [], [], [], []
        self.scope, self.uses_given, self.can_refuse = False, False, False
        self.read()

    def read(self):
        for parameter, role, counted in roles(self.function, self.api):
            if role in COUNTS:
                self.arguments += COUNTS[role]
            elif role == "length":
                self.add_length(counted)
            elif role.startswith("out_"):
                self.output(parameter, role)
            else:
                getattr(self, f"add_{role}")(parameter, local(parameter["name"]), base_of(parameter["type"]))

    def add_length(self, arrays):
        items = [local(array["name"]) for array in arrays]
        for other in items[1:]:
            self.before.append(f"given.same(len({items[0]}), len({other}), \"{other}\")")
            self.uses_given = self.can_refuse = True
        self.arguments.append(f"C.size_t(len({items[0]}))")

    def add_user_data(self, *_):
        callbacks = [local(parameter["name"]) for parameter in self.api.callback_parameters(self.function)]
        if not callbacks:
            self.taken.append(("release", "func()"))
            callbacks = ["release"]
        self.arguments.append(f"kept({', '.join(callbacks)})")

    def add(self, name, kind, argument):
        self.taken.append((name, kind))
        self.arguments.append(argument)

    def given(self, name, kind, method):
        """One that is made in C's memory, which can fail."""
        self.uses_given = self.can_refuse = True
        self.before.append(f"c{exported(name)} := {method}")
        self.add(name, kind, f"c{exported(name)}")

    def add_handle(self, _, name, base):
        self.kept.append(name)
        self.add(name, f"*{self.api.handles[base]}", f"{name}.c()")

    def add_handles(self, _, name, base):
        self.before.append(f"c{exported(name)} := make([]*C.{base}, len({name}))")
        self.before.append(f"for i, one := range {name} {{\n\t\tc{exported(name)}[i] = one.c()\n\t}}")
        self.kept.append(name)
        self.add(name, f"[]*{self.api.handles[base]}", f"first(c{exported(name)})")

    def add_callback(self, _, name, base):
        self.add(name, exported(base) + "Func", f"flag({name} != nil)")

    def add_text(self, parameter, name, _):
        self.uses_given = True
        self.add(name, "string", f"given.{'nullable' if parameter['nullable'] else 'text'}({name})")

    def add_texts(self, _, name, __):
        self.uses_given = True
        self.add(name, "[]string", f"given.texts({name})")

    def add_value(self, parameter, name, _):
        self.given(name, "any", f"given.{'optional' if parameter['nullable'] else 'value'}({name})")

    def add_values(self, _, name, __):
        self.given(name, "[]any", f"given.all({name})")

    def add_options(self, _, name, base):
        self.kept.append(name)
        self.given(name, f"*{self.api.options[base]}", f"{name}.c(&given)")

    def add_address(self, _, name, base):
        self.add(name, "unsafe.Pointer", name if base == "void" else f"(*C.struct_{base})({name})")

    def add_bytes(self, _, name, __):
        self.add(name, "[]byte", f"unsafe.Pointer(first({name}))")

    def add_numbers(self, _, name, base):
        self.add(name, f"[]{NUMBERS[base]}", f"(*C.{base})(first({name}))")

    def add_number(self, parameter, name, _):
        go, to_c, _ = self.api.plain(parameter["type"], parameter["doc"])
        self.add(name, go, to_c.format(name))

    def output(self, parameter, role):
        kind, name = parameter["type"], parameter["name"].removeprefix("out_")
        base, pointers = base_of(kind), kind["pointers"]
        go, variable = local(name), f"c{exported(name)}"
        if any(go == taken for taken, _ in self.taken):
            go = local(parameter["name"])
        if role == "out_values":
            self.before.append("var results [16]C.accel_value_t\n\tvar nResults C.size_t")
            self.arguments.append("&results[0]")
            self.result("out", "[]any", "readAll(&results[0], nResults)")
            self.after.append("for i := range results {\n\t\tC.accel_value_dispose(&results[i])\n\t}")
            return
        target = kind["c"].removesuffix("*").strip()
        c_type = "unsafe.Pointer" if base == "void" else f"{'*' * (pointers - 1)}C.{target.removeprefix('const ').removesuffix('*').strip()}"
        c_type = c_type.replace("C.struct ", "C.struct_")
        self.before.append(f"var {variable} {c_type}")
        self.arguments.append(f"&{variable}")
        if role == "out_scope":
            self.scope = variable
        elif role == "out_handle":
            self.result(go, f"*{self.api.handles[base]}", f"new{self.api.handles[base]}({variable})")
        elif role == "out_value":
            self.result(go, "any", f"made(&{variable})")
        elif role == "out_buffer":
            self.result(go, "string", f"text(&{variable})")
        elif role == "out_dimensions":
            self.result(go, "[]int64", f"dimensions({local(self.parameters[0]['name'])}, {variable})")
        elif role == "out_address":
            self.result(go, "unsafe.Pointer", variable if base == "void" else f"unsafe.Pointer({variable})")
        else:
            go_type, _, from_c = self.api.plain(kind, parameter["doc"])
            self.result(go, go_type, from_c.format(variable))

    def result(self, name, kind, expression):
        self.results.append((name, kind, expression))

    def call(self):
        """The call in C's terms, and what stands behind it."""
        arguments = self.arguments + (["&failure"] if self.checks else [])
        called = f"C.{'go_' if self.checks else ''}{self.name}({', '.join(arguments)})"
        keep = [f"runtime.KeepAlive({name})" for name in self.kept]
        if self.checks:
            begin = ["var failure C.go_failure", f"code := {called}", *keep]
            if not self.results and not INFORMATION.intersection(self.function["statuses"]):
                return begin, ["return status(code, failure)"]
            return begin, ["if err = status(code, failure); err != nil {\n\t\treturn\n\t}"]
        kind = self.function["returns"]["type"]
        if kind["c"] == "void":
            return [called, *keep], []
        base, pointers = base_of(kind), kind["pointers"]
        if pointers == 1 and base in self.api.handles:
            retained = f"C.{base.removesuffix('_t')}_retain(result)"
            return [f"result := {called}", *keep, "if result == nil {\n\t\treturn nil\n\t}"], \
                [f"return new{self.api.handles[base]}({retained})"]
        if pointers == 1 and base == "char":
            from_c = "C.GoString({})"
        else:
            from_c = self.api.plain(kind, self.function["returns"]["doc"])[2]
        return [f"result := {called}", *keep], [f"return {from_c.format('result')}"]

    def returned(self):
        kind = self.function["returns"]["type"]
        if self.scope:
            return " error"
        if self.checks:
            given = [f"{name} {go}" for name, go, _ in self.results]
            information = ["ok bool"] if INFORMATION.intersection(self.function["statuses"]) else []
            return f" ({', '.join(given + information + ['err error'])})" if given or information else " error"
        if kind["c"] == "void":
            return f" ({', '.join(f'{name} {go}' for name, go, _ in self.results)})" if self.results else ""
        base = base_of(kind)
        if kind["pointers"]:
            return f" *{self.api.handles[base]}" if base in self.api.handles else " string"
        return " " + self.api.plain(kind, self.function["returns"]["doc"])[0]

    def body(self):
        lines = ["var given arguments", "defer given.end()"] if self.uses_given else []
        lines += ["runtime.LockOSThread()", "defer runtime.UnlockOSThread()"] if self.scope else []
        lines += self.before
        if self.can_refuse:
            plain = self.returned() == " error"
            lines.append("if err := given.err; err != nil {\n\t\treturn err\n\t}" if plain else
                         "if err = given.err; err != nil {\n\t\treturn\n\t}")
        begin, end = self.call()
        if self.scope:
            end = ["if err := status(code, failure); err != nil {\n\t\treturn err\n\t}", f"return inside({self.scope}, body)"]
        lines += begin + end
        if end and end[-1].startswith("return ") or not self.results and not self.checks:
            return lines
        lines += [f"{name} = {expression}" for name, _, expression in self.results] + self.after
        if INFORMATION.intersection(self.function["statuses"]):
            lines.append("ok = code == C.ACCEL_OK")
        return lines + ["return"]

    def text(self):
        class_name, name, is_static = placed(self.function, self.api)
        is_member = bool(class_name) and not is_static
        taken = list(self.taken)
        receiver = ""
        if is_member:
            (self_name, self_type), *taken = taken
            receiver = f"({self_name} {self_type}) "
            other = self.api.functions.get(f"accel_{name}", self.function)
            if other is not self.function and placed(other, self.api)[0] == class_name:
                name = self.name  # accel_state_describe() beside accel_describe(): one of them keeps its long name
        elif class_name:
            name = f"new_{class_name}" if name == "create" else self.name
        name = exported(name.removesuffix("_begin") if self.scope else name)
        name = re.sub("^New.*", lambda found: f"New{class_name}", name) if class_name and name.startswith("New") else name
        if self.scope:
            taken.append(("body", "func(*Scope) error"))
        listed = ", ".join(f"{name} {kind}" for name, kind in taken)
        body = "".join(f"\t{line}\n" for line in self.body())
        text = comment(name, self.function, f"is {self.name}. ")
        return f"{text}func {receiver}{name}({listed}){self.returned()} {{\n{body}}}\n"
