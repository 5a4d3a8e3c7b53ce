"""The regular functions of the package of Julia: bindings/julia/src/generated.jl, after the table TABLE and otherwise by rule."""

import re
import textwrap

import class_table
import function_shape
import option
from emit_julia import NOTE, quoted
from emit_python import ELSE, choices, short
from emit_swig import INFORMATION
from go_types import Api

TABLE = "bindings/julia/functions.txt"
FILE = "bindings/julia/src/generated/methods.jl"
CLASSES = {"accel_module_t": "Model", "accel_dataloader_t": "DataLoader", "accel_device_t": "Device"}
OTHER_NAMES = {"module": "model", "modules": "models"}  # for words of the language
NUMBERS = {"int64_t": "Int64", "double": "Float64", "int32_t": "Int32", "size_t": "Csize_t", "accel_device_t": "Device"}
UNSET = {"double": "LibAccel.ACCEL_UNSET_DOUBLE", "int64_t": "LibAccel.ACCEL_UNSET_INT64", "int32_t": "LibAccel.ACCEL_UNSET",
         "accel_flag_t": "LibAccel.ACCEL_UNSET"}
CONVERSIONS = {"accel_device_t": "as_device({})", "accel_dtype_t": "dtype_code({})", "accel_reduction_t": "reduction({})"}
# What stands around a call by what it gives, or takes; {0} is the call, {1} a class or name.
GIVEN = {"out_handle": "made({1}, out -> {0})", "out_value": "result(out -> {0})", "out_buffer": "text(out -> {0})",
         "out_scope": "scoped(body, out -> {0})", "out_number": "output(out -> {0}, {1})"}
TAKEN = {"value": "lend({1} -> {0}, {1})", "handles": "with_handles(({1}, count) -> {0}, {1})",
         "options": "with_options(given -> {0}, LibAccel.{1}; options...)"}


class Method:
    def __init__(self, row, known, named):
        self.row, self.known, self.named, self.function = row, known, named, row.function
        self.fields = next((struct["fields"][1:] for struct in known.api["structs"] if struct["name"] == row.options()), [])
        self.roles = {parameter["name"]: (parameter, role, counted) for parameter, role, counted in row.roles}
        self.outputs = [name for name, (_, role, _) in self.roles.items() if role.startswith("out_")]
        if len(self.outputs) > 1 or any(role not in {*GIVEN, *TAKEN, "handle", "text", "number", "numbers", "length", "user_data", "destroy"}
                                        and name not in row.changed for name, (_, role, _) in self.roles.items()):
            raise function_shape.Unsupported(self.function["name"])

    def own(self, name):
        return OTHER_NAMES.get(name, name)

    def class_of(self, base):
        return CLASSES.get(base) or "".join(map(str.capitalize, short(base).split("_")))

    def argument(self, name):
        parameter, role, counted = self.roles[name]
        own, base, called = self.own(name), parameter["type"]["base"], [part[0] for part in self.row.listed]
        if name in self.row.changed:
            return self.row.changed[name]
        if role == "length":
            return "count" if self.roles[counted[0]["name"]][1] == "handles" else f"length({self.own(counted[0]['name'])})"
        if role in ("user_data", "destroy"):
            callback = next(one for one, (_, kind, _) in self.roles.items() if kind == "callback")
            held = [self.own(one) for one, (_, kind, _) in self.roles.items() if kind == "handle"]
            return f"keep({', '.join([self.own(callback), *held])})" if role == "user_data" else "destroy()"
        if role == "options" or role.startswith("out_"):
            return "given" if role == "options" else "out"
        if own not in called:
            return UNSET.get(base, "C_NULL")
        if parameter["nullable"] or self.row.own(own)[1:] == ("nothing",):
            return f"something({own}, {UNSET.get(base, 'C_NULL') if role == 'number' else 'C_NULL'})"
        if base in self.named:
            return f"number_of(CHOICES.{short(base)}, {own})"
        return f"collect({NUMBERS[base]}, {own})" if role == "numbers" else f"string({own})" if role == "text" else CONVERSIONS.get(base, "{}").format(own)

    def signature(self):
        """The parameters with the types of objects, those of the table as they stand there."""
        text = self.row.text
        for name, (parameter, role, _) in self.roles.items():
            kind = self.class_of(parameter["type"]["base"]) if role == "handle" else "Function" if role == "callback" else ""
            kind = f"Union{{{kind},Nothing}}" if kind and parameter["nullable"] else kind
            text = re.sub(rf"\b{self.own(name)}\b(?!::)", f"{self.own(name)}::{kind}", text, count=1) if kind else text
        text = f"body::Function, {text}".strip(", ") if "out_scope" in [role for _, role, _ in self.roles.values()] else text
        has_options = any(role == "options" for _, role, _ in self.roles.values())
        return text + ("" if not has_options else ", options..." if ";" in text else "; options...")

    def result(self, call):
        """The call with what stands around it."""
        returns, output = self.function["returns"], self.outputs and self.roles[self.outputs[0]]
        for name, (parameter, role, _) in self.roles.items():
            call = TAKEN[role].format(call, self.own(name) if role != "options" else parameter["type"]["base"]) if role in TAKEN and name not in \
                self.row.changed else call
        if output:
            kind = output[0]["type"]["base"]
            call = GIVEN[output[1]].format(call, NUMBERS.get(kind) or self.class_of(kind))
            is_truth = output[1] == "out_number" and function_shape.is_truth(output[0]["type"], output[0]["doc"])
            return f"{call} != 0" if is_truth else f"Int({call})" if kind == "size_t" else call + "::Map" * output[0]["doc"].startswith("A map")
        base = returns["type"]["base"]
        if base == "accel_status_t":
            return f"{call} == LibAccel.ACCEL_OK" if set(INFORMATION) & set(self.function["statuses"]) else f"({call}; {self.given_back()})"
        if function_shape.is_truth(returns["type"], returns["doc"]):
            return f"{call} == 1"
        return f"name_of(CHOICES.{short(base)}, {call})" if base in self.named else f"unsafe_string({call})" if base == "char" else \
            f"Int({call})" if base in ("int32_t", "int64_t") else call

    def given_back(self):
        """What has changed: the first object but a state, for names that end with !."""
        handles = [(self.own(name), parameter["type"]["base"]) for name, (parameter, role, _) in self.roles.items() if role == "handle"]
        listed = [own for part in self.row.listed for own, base in handles if own == part[0] and base != "accel_state_t"]
        return (listed or [own for own, _ in handles] or ["nothing"])[0] if self.row.name.endswith("!") else "nothing"

    def documentation(self, name):
        function, called = self.function, [part[0] for part in self.row.listed]
        meant = {self.own(one): parameter["doc"] for one, (parameter, role, _) in self.roles.items()
                 if one not in self.row.changed and self.own(one) in called and role != "handle"}
        meant.update((field["name"], field["doc"]) for field in self.fields if field["name"] != "reserved")
        given = self.roles[self.outputs[0]] if self.outputs else ({"doc": function["returns"]["doc"]}, function["returns"]["type"]["base"])
        parts = [textwrap.fill(f"{function['summary']} {ELSE.sub('', function['description'])}".strip(), 120),
                 "\n".join(f"- `{one}`: {text}" for one, text in meant.items() if not re.match("As (above|there)", text)),
                 f"Gives: {given[0]['doc']}" * (given[1] not in ("accel_status_t", "out_scope", "out_handle", "void"))]
        body = re.sub(r"\bNULL\b|\bACCEL_UNSET\w*", "`nothing`", re.sub("(?m)^Gives: 1\\b", "Gives: true", "\n\n".join(filter(None, parts))))
        listed = re.sub(r"kind::Val\{(:\w+)\}|::(Union\{\w+,\w+\}|\w+)", r"\1", self.signature())
        return quoted(f"    {name}({listed.removeprefix('body').strip(', ')}){' do ... end' * listed.startswith('body')}\n\n{body}")

    def text(self):
        arguments, name = [self.argument(one) for one in self.roles], self.row.name
        twin = self.known.functions.get(self.function["name"] + "_async")
        forms = [(name, self.result(f"LibAccel.{self.function['name']}({', '.join(arguments)})"))]
        if twin:
            both, rest = f"LibAccel.{self.function['name']}, LibAccel.{twin['name']}", ", ".join(one for one in arguments if one != "out")
            is_tree = any(role == "value" for _, role, _ in self.roles.values())
            forms = [(name, f"done({both}, {rest})" if is_tree else f"(done_in_place({both}, {rest}); {self.given_back()})"),
                     (re.sub(r"(\w+)(!?)$", r"\1_async\2", name).removeprefix("Base."),
                      f"under_way(LibAccel.{twin['name']}, {rest})" if is_tree else f"start(out -> LibAccel.{twin['name']}({rest}, out))")]
        return [(own, f'"""\n{self.documentation(own)}\n"""\n{own}({self.signature()}) =\n    {body}\n') for own, body in forms]


def rule(function, known):
    """The row of a function that is not in the table: accel_state_set_x(state, y) is x!(state, y)."""
    handle = function["parameters"][0]["type"]["base"] if function["parameters"] else ""
    name = function["name"].removeprefix("accel_").removeprefix(short(handle) + "_").removesuffix("_begin")
    roles = [(parameter["name"], role) for parameter, role, _ in function_shape.roles(function, known)]
    listed = ", ".join(OTHER_NAMES.get(one, one) for one, role in roles if role in ("handle", "text", "number", "numbers", "value", "handles"))
    name = re.sub("^(?:set_(.*)|(load_.*))", lambda found: f"{found[1] or found[2]}!", name)
    return [class_table.Row(known, "", f"{name} = {function['name']}({listed})")] if handle in known.handles else []


def emit(api, root):
    known, named = Api(api), choices(api)
    made = [Method(row, known, named) for _, rows in class_table.read(root / TABLE, known) for row in rows]
    written = {method.function["name"] for method in made} | class_table.named_in(root / "bindings/julia/src", "*.jl")
    for function in api["functions"]:
        if function["name"] not in written and not function["inline"] and not re.search("^accel_value_|_(retain|release|async|by_pointer)$", function["name"]):
            try:
                made += [Method(row, known, named) for row in rule(function, known)]
            except function_shape.Unsupported:
                pass  # by the function of C only
    methods = [entry for method in made for entry in method.text()]
    tables = "".join(f"    {short(alias)} = ({', '.join(f'{name} = {number}' for name, number in names.items())},),\n" for alias, names in named.items())
    fields = "".join(f"choices(::Type{{LibAccel.{struct['name']}}}) = ({', '.join(chosen)},)\n" for struct in filter(option.is_options, api["structs"])
                     if (chosen := [f"{field['name']} = CHOICES.{short(field['type']['base'])}" for field in struct["fields"] if field["type"]["base"] in named]))
    exported = textwrap.fill(", ".join(sorted({name for name, _ in methods if "." not in name})), 120, initial_indent="export ", subsequent_indent="    ")
    return {FILE: f"{NOTE}\n# The numbers behind the symbols that settings take, and the fields of options that are such.\nconst CHOICES = (\n{tables})\n"
            f"choices(::Type) = NamedTuple()\n{fields}\n{exported}\n\n" + "\n".join(text for _, text in methods)}
