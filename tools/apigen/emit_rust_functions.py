"""The regular functions of the crate `accel` of Rust: methods of its types. What the header does not say of them stands in its functions.txt."""

import re

from cpp_types import Unsupported, base_of
from emit_by_pointer import REASON, SUFFIX
from emit_cpp import placed
from emit_rust import NAMES, rust_name
from emit_rust_options import FOLDER
from function_shape import roles
from rust_types import NOTE, Api, camel, doc, of_flag, sentence, topics

TABLE = "bindings/rust/accel/functions.txt"
LINE = re.compile(r"^(accel_\w+\*?)(?: as (?:(\w+)\.)?(\w+))?( reads)?(?: writes (\w+))?(?:: (.+))?$")
OTHERWISE = {"callback": "its callback is by hand", "out_scope": "a region", "address": "memory of the program", "out_address": "memory of the program",
             "out_dimensions": "an array of the library", "out_values": "results of any number"}
PATHS = ("path", "folder")
# By role: the type, the line that makes the argument, and the argument; of what may be NULL, behind it.
TAKEN = {"text": ("&str", "let {0} = c_string({0})?;", "{0}.as_ptr()"), "texts": ("&[&str]", "let {0} = Texts::new({0})?;", "{0}.as_ptr()"),
         "value": ("&Value", "", "{0}.as_raw()"), "values": ("&[Arg<'_>]", "", "first({0}).cast()"), "numbers": ("&[{1}]", "", "first({0})"),
         "handle": ("&{1}", "", "{0}.as_raw()"), "handles": ("&[&{1}]", "let {0}: Vec<_> = {0}.iter().map(|one| one.as_raw()).collect();", "first(&{0})"),
         "options": ("{1}", "let {0} = {0}.as_raw()?;", "{0}")}
NULLABLE = {"text": ("Option<&str>", "let {0} = {0}.map(c_string).transpose()?;", "{0}.as_ref().map_or(ptr::null(), |text| text.as_ptr())"),
            "value": ("Option<&Value>", "", "{0}.map_or(ptr::null(), Value::as_raw)"),
            "handle": ("impl Into<Option<&'a {1}>>", "let {0} = {0}.into();", "{0}.map_or(ptr::{2}(), |one| one.as_raw())"),
            "options": ("impl Into<Option<{1}>>", "let {0} = {0}.into();\n        let {0} = optional(&{0})?;", "{0}")}
PATH = ("impl AsRef<Path>", "let {0} = c_path({0}.as_ref())?;", "{0}.as_ptr()")
# What becomes of a tensor that is not const: a collective writes it, a module owns it from then on, and rows are shared.
TENSORS = {"State": "&mut Tensor", "Model": "Tensor"}


class ByHand(Exception):
    """Why a function is not regular."""


class Function:
    def __init__(self, known, function, entry):
        self.known, self.function, self.entry = known, function, entry
        self.taken, self.lines, self.arguments, self.read, self.output = [], [], [], [], None
        self.class_name, self.name, self.is_static = placed(function, known)
        if entry.get("class"):
            self.class_name, self.is_static = entry["class"], entry["class"] == "nn"
        self.name = entry.get("name") or self.name
        self.place = "StateReader" if self.class_name == "State" and function["threads"] == "any" else self.class_name
        self.receiver = function["parameters"][0] if self.class_name and not self.is_static else None
        for parameter, role, _ in roles(function, known):
            self.add(parameter, role)

    def add(self, parameter, role):
        name, kind = rust_name(parameter["name"]), parameter["type"]
        if parameter is self.receiver:
            self.arguments.append("self.as_raw()")
        elif role == "length":
            counted = next(one["name"] for one in self.function["parameters"] if one["length"] == parameter["name"])
            self.arguments.append(f"{rust_name(counted)}.len()")
        elif role.startswith("out_") and role[4:] in ("handle", "value", "buffer", "number", "scope") and not self.output:
            self.output = parameter, role
            self.arguments.append("out")
        elif role == "number":
            self.number(parameter, name)
        elif role in TAKEN:
            base = kind["base"]
            names = {**self.known.handles, **self.known.options, **NAMES}
            rule = PATH if name in PATHS and not (self.receiver and self.class_name == "Model") else \
                NULLABLE.get(role, TAKEN[role]) if parameter["nullable"] else TAKEN[role]
            taken, line, argument = (part.format(name, names.get(base), "null" if kind["const"] else "null_mut") for part in rule)
            if base == "accel_tensor_t" and role == "handle" and not kind["const"] and not parameter["nullable"]:
                taken = TENSORS.get(self.class_name, taken)
                self.lines += [f"memory::writes((&*{name}).into())?;"] if taken.startswith("&mut") else []
            self.taken.append((name, taken))
            self.lines += [line] if line else []
            self.arguments.append(argument)
            if kind["const"] and role != "handles" and base in ("accel_tensor_t", "accel_value_t"):
                self.read.append(name)
        else:
            raise ByHand(OTHERWISE[role])

    def number(self, parameter, name):
        same = self.known.functions.get(self.function["name"].removesuffix("_async"), {"parameters": []})["parameters"]
        text = next((one["doc"] for one in same if one["name"] == parameter["name"]), parameter["doc"])
        kind, argument = self.known.plain(parameter["type"], text)
        if "ACCEL_UNSET" in text:
            kind, argument = f"Option<{'bool' if kind == 'i32' else kind}>", "or_unset({})"
        elif name.endswith("_ms"):
            name, kind, argument = name.removesuffix("_ms"), "Duration", "milliseconds({})"
        self.taken.append((name, kind))
        self.arguments.append(argument.format(name))

    def call(self, form="{}"):
        called = form.format(f"sys::{self.function['name']}({', '.join(self.arguments)})")
        long = f"\n            {called}\n        " if len(called) > 85 else f" {called} "
        return f"unsafe {{{long}}}"

    def result(self):
        """The type, and the last expression of the body."""
        kind, statuses = self.function["returns"]["type"], self.function["statuses"]
        if self.output:
            parameter, role = self.output
            base = parameter["type"]["base"]
            if role == "out_scope":
                writing = "_writing" if self.entry.get("writes") == "parameters" else ""
                return f"Result<Scope<{chr(39)}{'_' if self.receiver else 'static'}>>", f"Scope::begin{writing}(|out| {self.call()})"
            rust = self.known.handles.get(base) or {"accel_value_t": "Value", "accel_buffer_t": "String"}.get(base) or \
                self.known.plain(parameter["type"], parameter["doc"])[0]
            if re.search(r"\bNULL\b|ACCEL_UNSET", parameter["doc"]):
                rust = f"Option<{rust}>"
            return f"Result<{rust}>", f"made(|out| {self.call()})"
        if kind["base"] == "accel_status_t" and kind["pointers"] == 0:
            if "ACCEL_STEP_SKIPPED" in statuses:
                return "Result<Step>", f"check({self.call()}).map(Step::from_status)"
            return "Result<()>", f"check({self.call()}).map(drop)"
        if kind["c"] == "void":
            return "", f"{self.call()};"
        if kind["pointers"]:
            if kind["base"] != "char":
                raise ByHand("an object of the library")
            return "String", self.call("text({})")
        if any("ERROR" in status for status in statuses) and kind["base"] == "int64_t":
            return "Result<i64>", f"check_number({self.call()})"
        rust, _ = self.known.plain(kind, self.function["returns"]["doc"])
        if rust in ("bool", "Device"):
            return rust, self.call("{} == 1") if rust == "bool" else f"Device::from_raw({self.call()})"
        if base_of(kind) in self.known.choices:
            raise ByHand("a number that a newer library may have added")
        return rust, self.call()

    def work(self):
        """A call that goes on by itself owns its tensors until then: the last of them is what it gives, of values that is a new one."""
        is_value = self.taken and self.taken[0][1] == "&Value"
        own = [name for name, kind in self.taken if kind.removeprefix("&mut ").removeprefix("&") in ("Tensor", "Value") or "Tensor>" in kind]
        given = own[-1] if own else "()"
        self.lines, self.read = [], []
        self.arguments = [re.sub(r"\.as_raw\(\)|\.map_or.*", "", one) if one.startswith(tuple(own)) else one for one in self.arguments]
        rust = "()" if not own else "Tensor" if not is_value else "Value" if given.startswith("object") else "T"
        nullable = [name for name, kind in self.taken if kind.startswith("impl Into<Option")]
        self.taken = [(name, rust if name == given else "Option<Tensor>" if name in nullable else "Tensor" if name in own else kind)
                      for name, kind in self.taken]
        if rust != "Tensor":
            return f"Result<Work<{rust}>>", f"Work::of_tree({given}, |{given if own else '_'}, out| {self.call()})"
        if len(own) > 1:
            self.lines = [f"let ({own[0]}, reads) = lent({own[0]});"]
        return "Result<Work<Tensor>>", f"Work::of_tensors({given}, {'reads' if len(own) > 1 else 'Value::none()'}, |{given}, out| {self.call()})"

    def text(self):
        if self.output and self.output[0]["type"]["base"] == "accel_work_t":
            returned, last = self.work()
        elif self.class_name == "State" and self.taken and self.taken[0] in (("value", "&Value"), ("inputs", "&Value")) and self.output:
            name, returned = self.taken[0][0], "Result<T>"
            self.taken[0], self.read, last = (name, "&T"), [], f"T::from_value(made(|out| {self.call()})?)"
            self.lines += [f"let {name} = {name}.as_arg();", f"memory::reads(&[{name}])?;"]
        else:
            returned, last = self.result()
        generics = ["'a"] * any("&'a" in kind for _, kind in self.taken) + ["T: Tree"] * any(kind in ("T", "&T") for _, kind in self.taken)
        lines = list(self.lines)
        if any("?" in line for line in lines) and not returned.startswith("Result"):
            returned, last = f"Result<{returned}>", f"check_number({last})" if returned == "i64" else f"Ok({last})"
        if self.read or self.entry.get("reads"):
            names = (["self"] if self.entry.get("reads") else []) + self.read
            is_array = [kind for name, kind in self.taken if name == names[0]] == ["&[Arg<'_>]"]
            lines.append(f"memory::reads({names[0]})?;" if is_array else f"memory::reads(&[{', '.join(f'{name}.into()' for name in names)}])?;")
        writes = self.entry.get("writes")
        if writes and writes != "parameters":
            lines.append("memory::writes_anything()?;" if writes == "anything" else f"memory::writes_model({writes})?;")
        changes = self.receiver and not self.receiver["type"]["const"] and self.class_name in ("Tensor", "DataLoader") and not self.output
        if changes and self.class_name == "Tensor":
            lines.append("memory::writes((&*self).into())?;")
        listed = ", ".join((["&mut self" if changes else "&self"] if self.receiver else []) + [f"{name}: {kind}" for name, kind in self.taken])
        head = f"    pub fn {rust_name(self.name.removesuffix('_begin'))}{f'<{chr(44).join(generics)}>' if generics else ''}({listed})"
        head += f" -> {returned}" if returned else ""
        body = "".join(f"        {line}\n" for line in [*lines, last])
        return f"{self.documentation()}    #[inline]\n{head} {{\n{body}    }}\n"

    def documentation(self):
        function = self.function
        parts = [sentence(f"{function['summary']} {function['description']}".strip())]
        named = [name.removeprefix("r#") for name, _ in self.taken]
        listed = [f"* `{one['name']}`: {of_flag(one['doc'])}" for one in function["parameters"]
                  if one["name"].removesuffix("_ms") in named and one["doc"] not in ("", "As there.")]
        parts += ["", *listed] if listed else []
        given = self.output[0]["doc"] if self.output else "" if function["returns"]["type"]["base"] == "accel_status_t" else function["returns"]["doc"]
        parts += ["", f"Gives: {of_flag(given)}"] if given else []
        errors = ", ".join(camel(status.removeprefix("ACCEL_ERROR_").lower()) for status in function["statuses"] if "ERROR" in status)
        parts += ["", "# Errors", f"{errors}."] if errors else []
        return doc(re.sub(r"\bNULL\b|ACCEL_UNSET\w*", "`None`", "\n".join(parts)), "    ")


def table(root):
    """{function: what stands of it in functions.txt}"""
    found = {}
    for number, line in enumerate((root / TABLE).read_text().splitlines(), 1):
        entry = LINE.match(line)
        if entry:
            found[entry[1]] = dict(zip(("class", "name", "reads", "writes", "reason"), entry.groups()[1:]))
        elif line and not line.startswith("#"):
            raise SystemExit(f"{TABLE}:{number}: {line!r}, expected FUNCTION [as [CLASS.]NAME] [reads] [writes WHAT] [: WHY BY HAND]")
    return found


def survey(api, root):
    """[(topic, class, text)] of the functions, and {function: reason} for those that are by hand or left out."""
    known, entries, texts, reasons = Api(api), table(root), [], {}
    done = {handle[end] for handle in api["handles"] for end in ("retain", "release")} | {struct["init_function"] for struct in api["structs"]}
    for function in api["functions"]:
        name = function["name"]
        entry = entries.get(name) or next((entries[one] for one in entries if one.endswith("*") and name.startswith(one[:-1])), {})
        if name.endswith(SUFFIX) or function["inline"] or name in done or entry.get("reason"):
            reasons[name] = entry.get("reason") or REASON
            continue
        try:
            one = Function(known, function, entry)
            text = one.text()
            texts.append((topics(api)[function["section"]], one.place, text))
        except (Unsupported, ByHand) as unsupported:
            reasons[name] = str(unsupported)
    return texts, reasons


def emit(api, root):
    texts, _ = survey(api, root)
    files = {}
    for topic, class_name, text in texts:
        files.setdefault("nn" if class_name == "nn" else topic, {}).setdefault(class_name if class_name != "nn" else "", []).append(text)
    return {f"{FOLDER}/{topic}.rs": f"{NOTE}use super::*;\n\n" + "\n".join(
        (f"impl {name} {{\n{chr(10).join(listed)}}}\n" if name else re.sub("(?m)^    ", "", "\n".join(listed))) for name, listed in classes.items())
        for topic, classes in files.items()}
