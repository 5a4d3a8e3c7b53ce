# SPDX-License-Identifier: Apache-2.0
"""The regular functions of the package of Julia: bindings/julia/src/generated/, after api/languages.yaml and otherwise by rule."""

import re
import textwrap

import emit_julia_topics
import function_shape
import languages
import option
from emit_julia import NOTE, quoted
from emit_python import ELSE, choices, short
from emit_swig import INFORMATION
from go_types import Api

FILE = "bindings/julia/src/generated/methods.jl"
NUMBERS = {"int64_t": "Int64", "double": "Float64", "int32_t": "Int32", "size_t": "Csize_t", "accel_device_t": "Device"}
UNSET = {"double": "LibAccel.ACCEL_UNSET_DOUBLE", "int64_t": "LibAccel.ACCEL_UNSET_INT64", "int32_t": "LibAccel.ACCEL_UNSET",
         "accel_flag_t": "LibAccel.ACCEL_UNSET"}
CONVERSIONS = {"accel_device_t": "Ref(as_device({}))", "accel_dtype_t": "dtype_code({})", "accel_reduction_t": "reduction({})"}
# What stands around a call by what it gives, or takes; {0} is the call, {1} a class or name.
GIVEN = {"out_handle": "made({1}, out -> {0})", "out_value": "result(out -> {0})", "out_buffer": "text(out -> {0})",
         "out_scope": "scoped(body, out -> {0})", "out_number": "output(out -> {0}, {1})"}
TAKEN = {"value": "lend({1} -> {0}, {1})", "handles": "with_handles(({1}, {2}) -> {0}, {1})",
         "options": "with_options(given -> {0}, LibAccel.{1}; options...)"}
# C's arguments by what they are; {} is the callback, and the objects that live at least as long.
ARGUMENTS = {"user_data": "keep({})", "destroy": "destroy()", "options": "given", **dict.fromkeys(GIVEN, "out")}
KNOWN = {*TAKEN, *ARGUMENTS, "handle", "text", "number", "numbers", "length", "device"}


def own(name):
    return {"module": "model", "modules": "models"}.get(name, name)  # which are words of the language


def class_of(base):
    return {"accel_module_t": "Model", "accel_dataloader_t": "DataLoader"}.get(base) or "".join(map(str.capitalize, short(base).split("_")))


class Method:
    def __init__(self, row, known, named):
        self.row, self.known, self.named, self.function = row, known, named, row.function
        self.fields = next((struct["fields"][1:] for struct in known.api["structs"] if struct["name"] == row.options()), [])
        self.parameters = {parameter["name"]: parameter for parameter, _, _ in row.roles}
        self.roles = {parameter["name"]: role for parameter, role, _ in row.roles}
        self.bases = {name: parameter["type"]["base"] for name, parameter in self.parameters.items()}
        self.counted = {parameter["name"]: counted[0]["name"] for parameter, _, counted in row.roles if counted}
        self.beside = {other["name"]: counted[0]["name"] for _, _, counted in row.roles if counted for other in counted[1:]}
        self.output = next((name for name, role in self.roles.items() if role.startswith("out_")), None)
        if any(role not in KNOWN and name not in row.changed or role.startswith("out_") and name != self.output for name, role in self.roles.items()):
            raise function_shape.Unsupported(self.function["name"])

    def of_role(self, *wanted):
        return [own(name) for name, role in self.roles.items() if role in wanted]

    def count_of(self, name):
        """The variable for the number of handles in an array."""
        return "count" if len(self.of_role("handles")) == 1 else f"number_of_{own(name)}"

    def argument(self, name):
        role, base, mine = self.roles[name], self.bases[name], self.row.own(own(name))
        if name in self.row.changed or role in ARGUMENTS:
            return self.row.changed.get(name) or ARGUMENTS[role].format(", ".join(self.of_role("callback") + self.of_role("handle")))
        if role == "length":
            return self.count_of(self.counted[name]) if self.roles[self.counted[name]] == "handles" else f"length({own(self.counted[name])})"
        if not mine:
            return UNSET.get(base, "C_NULL")
        if self.parameters[name]["nullable"] or mine[1:] == ("nothing",):
            if role == "device":
                return f"{mine[0]} === nothing ? C_NULL : {CONVERSIONS[base].format(mine[0])}"
            return f"something({mine[0]}, {UNSET[base] if role == 'number' else 'C_NULL'})"
        if base in self.named:
            return f"number_of(CHOICES.{short(base)}, {mine[0]})"
        if role == "numbers" and name in self.beside:
            return f"collect({NUMBERS.get(base)}, as_many({mine[0]}, {own(self.beside[name])}))"
        return {"numbers": f"collect({NUMBERS.get(base)}, {{}})", "text": "string({})"}.get(role, CONVERSIONS.get(base, "{}")).format(mine[0])

    def signature(self):
        """The parameters with the types of objects, those of the table as they stand there."""
        text = self.row.text
        for name in (name for name, role in self.roles.items() if role in ("handle", "callback")):
            kind = class_of(self.bases[name]) if self.roles[name] == "handle" else "Function"
            kind = f"Union{{{kind},Nothing}}" if self.parameters[name]["nullable"] else kind
            text = re.sub(rf"\b{own(name)}\b(?!::)", f"{own(name)}::{kind}", text, count=1)
        text = f"body::Function, {text}".strip(", ").replace(", ;", ";") if self.of_role("out_scope") else text
        return text + (", options..." if ";" in text else "; options...") * bool(self.of_role("options"))

    def result(self, call):
        """The call with what stands around it."""
        for name, role in self.roles.items():
            if role in TAKEN and name not in self.row.changed:
                call = TAKEN[role].format(call, self.bases[name] if role == "options" else own(name), self.count_of(name))
        base, kind, doc = self.function["returns"]["type"]["base"], self.function["returns"]["type"], self.function["returns"]["doc"]
        if self.output:
            base, kind, doc = self.bases[self.output], self.parameters[self.output]["type"], self.parameters[self.output]["doc"]
            call = GIVEN[self.roles[self.output]].format(call, NUMBERS.get(base) or class_of(base)) + "::Map" * doc.startswith("A map")
            call = f"of_form(loader, {call})" if base == "accel_dataloader_t" and "loader" in self.roles else call
        elif base == "accel_status_t":
            return f"{call} == LibAccel.ACCEL_OK" if set(INFORMATION) & set(self.function["statuses"]) else f"({call}; {self.given_back()})"
        if function_shape.is_truth(kind, doc):
            return f"{call} == 1"
        if base == "accel_device_t" and not self.output:
            return f'device_at({call}, "{self.function["name"]}")'
        return f"name_of(CHOICES.{short(base)}, {call})" if base in self.named else f"unsafe_string({call})" if base == "char" else \
            f"Int({call})" if base in ("int32_t", "size_t") else call

    def given_back(self):
        """What has changed: the first object but a state, for names that end with !."""
        handles = {own(name): self.bases[name] for name, role in self.roles.items() if role == "handle"}
        listed = [part[0] for part in self.row.listed if handles.get(part[0], "accel_state_t") != "accel_state_t"]
        return [*listed, *handles, "nothing"][0] if self.row.name.endswith("!") else "nothing"

    def documentation(self, name):
        function, returns = self.function, self.function["returns"]
        meant = {own(one): parameter["doc"] for one, parameter in self.parameters.items()
                 if one not in self.row.changed and self.row.own(own(one)) and self.roles[one] != "handle"}
        meant.update((field["name"], field["doc"]) for field in self.fields if field["name"] != "reserved")
        given = self.parameters[self.output]["doc"] if self.output else returns["doc"] * (returns["type"]["base"] != "accel_status_t")
        parts = [textwrap.fill(f"{function['summary']} {ELSE.sub('', function['description'])}".strip(), 120),
                 "\n".join(f"- `{one}`: {text}" for one, text in meant.items() if not re.match("See (above|there)", text)),
                 f"Gives: {given}" if given and not self.of_role("out_scope", "out_handle") else ""]
        body = re.sub(r"\bNULL\b|\bACCEL_UNSET\w*", "`nothing`", re.sub("(?m)^Gives: 1\\b", "Gives: true", "\n\n".join(filter(None, parts))))
        listed = re.sub(r"kind::Val\{(:\w+)\}|::(Union\{\w+,\w+\}|\w+)", r"\1", self.signature())
        return quoted(f"    {name}({listed.removeprefix('body').strip(', ')}){' do ... end' * listed.startswith('body')}\n\n{body}")

    def text(self):
        arguments, name, plain = [self.argument(one) for one in self.roles], self.row.name, f"LibAccel.{self.function['name']}"
        forms = {name: self.result(f"{plain}({', '.join(arguments)})")}
        if self.function["name"] + "_async" in self.known.functions:
            rest, started = ", ".join(one for one in arguments if one != "out"), re.sub(r"(Base\.)?(\w+)(!?)$", r"\2_async\3", name)
            forms = {name: f"done({plain}, {plain}_async, {rest})", started: f"under_way({plain}_async, {rest})"} if self.of_role("value") else \
                {name: f"(done_in_place({plain}, {plain}_async, {rest}); {self.given_back()})", started: f"start(out -> {plain}_async({rest}, out))"}
        return [(called, f'"""\n{self.documentation(called)}\n"""\n{called}({self.signature()}) =\n    {body}\n') for called, body in forms.items()]


def rule(function, known):
    """The row of a function that is not in the table: accel_state_set_x(state, y) is x!(state, y)."""
    handle = function["parameters"][0]["type"]["base"] if function["parameters"] else ""
    name = function["name"].removeprefix("accel_").removeprefix(short(handle) + "_").removesuffix("_begin")
    roles = [(parameter["name"], role) for parameter, role, _ in function_shape.roles(function, known)]
    listed = ", ".join(own(one) for one, role in roles if role in ("handle", "text", "number", "numbers", "value", "handles", "device"))
    name = re.sub("^(?:set_(.*)|(load_.*))", lambda found: f"{found[1] or found[2]}!", name)
    return [languages.Row(known, "", f"{name} = {function['name']}({listed})")] if handle in known.handles else []


def emit(api, root):
    known, named = Api(api), choices(api)
    made = [Method(row, known, named) for row in languages.rows(languages.read(root, "julia")["functions"], known)]
    written = {method.function["name"] for method in made} | languages.named_in(root / "bindings/julia/src", "*.jl")
    for function in api["functions"]:
        if function["name"] not in written and not function["inline"] and not re.search("^accel_value_|_(retain|release|async)$", function["name"]):
            try:
                made += [Method(row, known, named) for row in rule(function, known)]
            except function_shape.Unsupported:
                pass  # by the function of C only
    entries = [(method.function["section"], *entry) for method in made for entry in method.text()]
    methods = [(name, text) for _, name, text in entries]
    topics = emit_julia_topics.emit(root, {section["number"]: section["title"] for section in api["sections"]},
                                    {(section, name) for section, name, _ in entries if "." not in name})
    tables = "".join(f"    {short(alias)} = ({', '.join(f'{name} = {number}' for name, number in names.items())},),\n" for alias, names in named.items())
    fields = "".join(f"choices(::Type{{LibAccel.{struct['name']}}}) = ({', '.join(chosen)},)\n" for struct in filter(option.is_options, api["structs"])
                     if (chosen := [f"{field['name']} = CHOICES.{short(field['type']['base'])}" for field in struct["fields"] if field["type"]["base"] in named]))
    return {FILE: f"{NOTE}\n# The numbers behind the symbols that settings take, and the fields of options that are such.\nconst CHOICES = (\n{tables})\n"
            f"choices(::Type) = NamedTuple()\n{fields}\n" + "\n".join(text for _, text in methods), **topics}
