# SPDX-License-Identifier: Apache-2.0
"""The regular functions of the crate `accel` of Rust: methods of its types. What the header does not say of them stands in api/languages.yaml."""

import re

import languages
from emit_cpp import placed
from emit_rust import NAMES, rust_name
from emit_rust_closures import closures, module_of
from emit_rust_closures import emit as emit_closures
from emit_rust_options import FOLDER
from function_shape import Unsupported, made_by_themselves, roles
from rust_types import NOTE, Api, camel, doc, of_flag, sentence, topics

FLAGS_OF_OPERATORS = "bindings/rust/accel/examples/generate_operators/flags.rs"
UNLISTED = "a flag without a line"
OTHERWISE = {"callback": "its callbacks are by hand", "address": "memory of the program", "out_address": "memory of the program",
             "bytes": "memory of the program", "out_dimensions": "an array of the library"}
# By role: the type, the line that makes C's argument, and the argument. {1} is the type's name, {2} the NULL of C's.
TAKEN = {"text": ("&str", "let {0} = c_string({0})?;", "{0}.as_ptr()"), "texts": ("&[&str]", "let {0} = Texts::new({0})?;", "{0}.as_ptr()"),
         "value": ("&Value", "", "{0}.as_raw()"), "values": ("&[Arg<'_>]", "", "first({0}).cast()"), "numbers": ("&[{1}]", "", "first({0})"), "device": ("Device", "", "&{0}.to_raw()"),
         "handle": ("&{1}", "", "{0}.as_raw()"), "options": ("{1}", "let {0} = {0}.as_raw()?;", "{0}"),
         "handles": ("&[&{1}]", "let {0}: Vec<_> = {0}.iter().map(|one| one.as_raw()).collect();", "first(&{0})")}
NULLABLE = {"text": ("Option<&str>", "let {0} = {0}.map(c_string).transpose()?;", "{0}.as_ref().map_or(ptr::null(), |text| text.as_ptr())"),
            "value": ("Option<&Value>", "", "{0}.map_or(ptr::null(), Value::as_raw)"),
            "handle": ("impl Into<Option<&'a {1}>>", "let {0} = {0}.into();", "{0}.map_or(ptr::{2}(), |one| one.as_raw())"),
            "device": ("Option<Device>", "let {0} = {0}.map(Device::to_raw);", "{0}.as_ref().map_or(ptr::null(), |one| one as *const _)"),
            "options": ("impl Into<Option<{1}>>", "let {0} = {0}.into();\n        let {0} = optional(&{0})?;", "{0}")}
PATH = ("impl AsRef<Path>", "let {0} = c_path({0}.as_ref())?;", "{0}.as_ptr()")
NULLABLE_PATH = ("impl Into<Option<&'a Path>>", "let {0} = {0}.into().map(c_path).transpose()?;",
                 "{0}.as_ref().map_or(ptr::null(), |path| path.as_ptr())")
PATHS = ("path", "folder", "other", "destination")
WRITTEN = ("&mut Tensor", "memory::writes({0})?;", "{0}.as_raw()")
# What becomes of a tensor that is not const: a collective writes it, a module owns it from then on, and rows are shared.
TENSORS = {"State": WRITTEN, "Model": ("Tensor", "", "{0}.as_raw()")}
SHARED = ("Tensor", "Value", "StateReader")
OUTPUTS = {"out_value": "Value", "out_buffer": "String", "out_handle": "", "out_number": "", "out_scope": ""}
WITHOUT_CLOSURE = {"callback": "None", "user_data": "ptr::null_mut()", "destroy": "None"}


class ByHand(Exception):
    """Why a function is not regular."""


class Function:
    """A function in Rust: what it takes, the lines before the call, and C's arguments."""

    def __init__(self, known, flags, function, entry, known_closures):
        self.known, self.flags, self.function, self.entry, self.taken, self.lines, self.arguments, self.outputs = known, flags, function, entry, [], [], [], []
        self.read = ["self"] if entry.get("reads") else []
        self.closure, self.closures = None, known_closures
        owner, name, is_static = placed(function, known)
        self.owner, self.name = entry.get("owner") or owner, rust_name((entry.get("name") or name).removesuffix("_begin"))
        has_self = self.owner not in ("", "nn") and (entry.get("owner") or not is_static)
        self.receiver = function["parameters"][0] if has_self else None
        self.tensors = [one["name"] for one in function["parameters"] if one["type"]["base"] == "accel_tensor_t"]
        for parameter, role, counted in roles(function, known):
            if parameter is self.receiver:
                self.arguments.append("self.as_raw()")
            elif role == "length":
                names = [rust_name(one["name"]) for one in counted]
                self.lines += [f'crate::call::same_length({names[0]}.len(), {other}.len(), "{other}")?;' for other in names[1:]]
                self.arguments.append(f"{names[0]}.len()")
            elif role in OUTPUTS:
                self.outputs.append((parameter, role))
                self.arguments.append("out")
            elif self.closures is None and role in WITHOUT_CLOSURE:
                self.arguments.append(WITHOUT_CLOSURE[role])
            elif role == "number" or role in TAKEN:
                self.add(parameter, role)
            elif parameter["type"]["base"] in (self.closures or ()):
                self.add_closure(rust_name(parameter["name"]), self.closures[parameter["type"]["base"]])
            elif self.closure and role in ("user_data", "destroy"):
                self.arguments.append({"user_data": "data"}.get(role, role))
            else:
                raise ByHand(OTHERWISE.get(role, "several results"))
        self.output = self.outputs[0] if self.outputs else None
        if len(self.outputs) > 1:
            places = iter(range(len(self.outputs)))
            self.arguments = [f"&mut (*out).{next(places)}" if one == "out" else one for one in self.arguments]

    def add_closure(self, name, closure):
        self.closure = name, closure
        self.arguments.append("call")

    def add(self, parameter, role):
        name, base = rust_name(parameter["name"]), parameter["type"]["base"]
        rust, line, argument = self.number(parameter) if role == "number" else self.owned(name, base, parameter["nullable"]) \
            if self.function["name"].endswith("_async") and base in ("accel_tensor_t", "accel_value_t") else self.rule(parameter, role)
        name = name.removesuffix("_ms") if rust == "Duration" else name
        words = name, {**self.known.handles, **self.known.options, **NAMES}.get(base), "null" if parameter["type"]["const"] else "null_mut"
        rust, line, argument = (part.format(*words) for part in (rust, line, argument))
        self.taken.append((name, rust))
        self.lines += [line] if line else []
        self.arguments.append(argument)
        name = f"&{name}" if "Option<" in rust else name
        self.read += [name] if re.search(r"&('a )?(Tensor|Value)|Arg<", rust) and parameter["type"]["const"] and role != "handles" else []

    def rule(self, parameter, role):
        if role == "text" and parameter["name"] in PATHS and not (self.receiver and self.owner == "Model"):
            return NULLABLE_PATH if parameter["nullable"] else PATH
        if parameter["nullable"] and role in NULLABLE:
            return NULLABLE[role]
        is_changed = role == "handle" and parameter["type"]["base"] == "accel_tensor_t" and not parameter["type"]["const"]
        return TENSORS.get(self.owner, TAKEN[role]) if is_changed else TAKEN[role]

    def number(self, parameter):
        """One that is started by itself has the parameters of the other."""
        same = self.known.functions.get(self.function["name"].removesuffix("_async"), self.function)["parameters"]
        text = next(one["doc"] for one in same if one["name"] == parameter["name"])
        rust, argument = self.known.plain(parameter["type"], text)
        is_flag = rust == "i32" and "ACCEL_UNSET" in text and not text.startswith("ACCEL_")
        rust = self.flag(parameter["name"]) if rust == "bool" or is_flag else rust
        if "ACCEL_UNSET" in text:
            return f"impl Into<Option<{rust}>>", "", "or_unset({0}.into())"
        return ("Duration", "", "milliseconds({0})") if parameter["name"].endswith("_ms") else (rust, "", argument)

    def flag(self, name):
        """A bool only where it is all that is set."""
        if re.search(r"_set_|_train$", self.function["name"]) and len(self.function["parameters"]) == 2 and self.receiver:
            return "bool"
        return self.flags.get(name, [UNLISTED])[0]

    def owned(self, name, base, nullable):
        """A call in the background owns what it reads and writes; its result is the last tensor, or a tree like that of the value."""
        if base == "accel_value_t":
            return "Value" if name.startswith("object") else "T", "", "{0}"
        rust = "Option<Tensor>" if nullable else "Tensor"
        return rust, "" if name == self.tensors[-1] else "let ({0}, reads) = raw_and_owner({0});", "{0}"

    def call(self, form="{}"):
        called = form.format(f"sys::{self.function['name']}({', '.join(self.arguments)})")
        return f"unsafe {{\n            {called}\n        }}" if len(called) > 85 else f"unsafe {{ {called} }}"

    def result(self):
        """The type, and the last expression of the body."""
        returned = self.function["returns"]
        if self.output:
            return self.of_output(*self.output)
        if returned["type"]["base"] == "accel_status_t":
            is_step = "ACCEL_STEP_SKIPPED" in self.function["statuses"]
            if self.by_numbers():
                return "Result<()>", f"check_callback_of_numbers(|| {self.call()}).map(drop)"
            return f"Result<{'Step' if is_step else '()'}>", f"check({self.call()}).map({'Step::from_status' if is_step else 'drop'})"
        if returned["type"]["base"] == "accel_device_t":
            raise ByHand("a struct of the state")
        rust = "String" if returned["type"]["pointers"] else self.known.plain(returned["type"], returned["doc"])[0]
        if returned["type"]["base"] in self.known.choices:  # a newer library may have more
            return rust, f"{rust}::from_raw({self.call()}).unwrap_or({rust}::{next(iter(self.known.choices[returned['type']['base']].values()))})"
        if rust not in ("String", "bool", *NAMES.values()):
            raise ByHand("a struct")
        last, has_refused = self.call({"String": "text({})", "bool": "{} == 1"}.get(rust, "{}")), any("?" in line for line in self.lines)
        if rust == "i64" and (has_refused or any("ERROR" in status for status in self.function["statuses"])):
            return "Result<i64>", f"check_number({last})"
        return (f"Result<{rust}>", f"Ok({last})") if has_refused else (rust, last)

    def of_output(self, parameter, role):
        base, first = parameter["type"]["base"], self.taken[0] if self.taken else ("()", "()")
        if base == "accel_work_t" and self.tensors:
            reads = "reads" if len(self.tensors) > 1 else "Value::none()"
            return "Result<Work<Tensor>>", f"Work::of_tensors({self.tensors[-1]}, {reads}, |{self.tensors[-1]}, out| {self.call()})"
        if base == "accel_work_t":
            return f"Result<Work<{first[1]}>>", f"Work::of_tree({first[0]}, |{first[0].replace('()', '_')}, out| {self.call()})"
        if role == "out_scope":
            writing = "_writing" if self.entry.get("writes") == "parameters" else ""
            return f"Result<Scope<{chr(39)}{'_' if self.receiver else 'static'}>>", f"Scope::begin{writing}(|out| {self.call()})"
        if self.owner == "State" and first in (("value", "&Value"), ("inputs", "&Value")):
            self.taken[0], self.read = (first[0], "&T"), []
            self.lines += [f"let {first[0]} = {first[0]}.as_arg()?;", f"memory::reads(&{first[0]})?;"]
            return "Result<T>", f"T::from_value(made(|out| {self.call()})?)"
        kinds = [self.kind_of(*one) for one in self.outputs]
        pair = len(kinds) > 1 and f"({', '.join(kinds)})"
        return f"Result<{pair or kinds[0]}>", f"made{self.by_numbers()}{f'::<{pair}>' if pair else ''}(|out| {self.call()})"

    def kind_of(self, parameter, role):
        rust = OUTPUTS[role] or self.known.handles.get(parameter["type"]["base"]) or self.known.plain(parameter["type"], parameter["doc"])[0]
        return f"Option<{rust}>" if re.search("ACCEL_UNSET" if role == "out_number" else "NULL|ACCEL_UNSET", parameter["doc"]) else rust

    def by_numbers(self):
        """A callback that answers a number has no status to fail with."""
        return "_by_numbers" * bool(self.entry.get("numbers") or self.closure and self.closure[1].returns["c"] == "double")

    def text(self):
        returned, last = self.result()
        kinds = [kind for _, kind in self.taken]
        if any(UNLISTED in kind for kind in kinds):
            raise SystemExit(f"{languages.TABLE}: expected a flag for each of {self.taken} of {self.function['name']}()")
        generics = ", ".join(["'a"] * any("&'a" in kind for kind in kinds) + ["T: Tree"] * any(kind in ("T", "&T") for kind in kinds) + ["F"] * bool(self.closure))
        bound = f"\n    where\n        F: {self.closure[1].bound()},\n   " if self.closure else ""
        self.taken += [(self.closure[0], "F")] if self.closure else []
        self.lines += [f"memory::reads({name})?;" for name in self.read]
        writes = {"anything": "memory::writes_anything()?;", "self": "memory::writes(self)?;"}.get(self.entry.get("writes"))
        self.lines += [writes] if writes else []
        # What threads share is needed for itself where one thread at a time may call.
        changes = self.receiver and self.function["threads"] != "any" and (self.owner in SHARED or self.owner == "DataLoader" and not self.output)
        self.lines += [WRITTEN[1].format("self")] if changes and self.owner == "Tensor" else []
        if self.closure:  # last, so that nothing fails between this and the call
            name, closure = self.closure
            self.lines.append(f"let (call, data, destroy) = crate::{module_of(closure, self.known.api)}::closures::{closure.name}({name});")
        listed = ", ".join(["&mut self" if changes else "&self"] * bool(self.receiver) + [f"{name}: {kind}" for name, kind in self.taken])
        body = "".join(f"        {line}\n" for line in [*self.lines, last])
        return (f"{self.documentation()}    #[inline]\n    pub fn {self.name}{generics and f'<{generics}>'}({listed}) -> {returned}{bound} {{\n{body}    }}\n")

    def documentation(self):
        function, names = self.function, {name.removeprefix("r#") for name, kind in self.taken if kind != "F"}
        listed = [f"* `{one['name']}`: {sentence(of_flag(one['doc']))}" for one in function["parameters"]
                  if one["name"].removesuffix("_ms") in names and one["doc"] not in ("", "See there.")]
        listed += [self.closure[1].documentation(parameter) for parameter in function["parameters"] if self.closure and parameter["name"] == self.closure[0]]
        docs = [one["doc"].replace(" May be NULL.", "" if role == "out_number" else " May be NULL.") for one, role in self.outputs]
        given = " ".join(dict.fromkeys(docs)) if docs else function["returns"]["doc"] * (function["returns"]["type"]["base"] != "accel_status_t")
        errors = [camel(status.removeprefix("ACCEL_ERROR_").lower()) for status in function["statuses"] if "ERROR" in status]
        parts = [sentence(f"{function['summary']} {function['description']}".strip()), "\n".join(listed), given not in ("", "See there.") and f"Gives: {sentence(of_flag(given))}",
                 errors and f"# Errors\n{', '.join(errors)}."]
        return doc(re.sub(r"\bNULL\b|ACCEL_UNSET\w*", "`None`", "\n\n".join(filter(None, parts))), "    ")


def table(root):
    """{function: what stands of it in the table}"""
    written, found = languages.read(root, "rust"), {}
    for function, name in written.get("names", {}).items():
        owner, _, own = name.rpartition(".")
        found.setdefault(function, {}).update(owner=owner, name=own)
    for word in ("reads", "numbers"):
        for function in written.get(word, []):
            found.setdefault(function, {})[word] = True
    for word, key in (("writes", "writes"), ("closures", "held")):
        for what, functions in written.get(word, {}).items():
            for function in functions:
                found.setdefault(function, {})[key] = what
    for function, reason in written.get("by_hand", {}).items():
        found.setdefault(function, {})["reason"] = reason
    return found


def flags(root):
    """{parameter: (enumeration, true, false)}"""
    return {name: tuple(row) for name, row in languages.read(root, "rust")["flags"].items()}


def emit_flags_of_operators(root):
    """The enumerations by parameters, for the example that writes the typed operators."""
    rows = "".join(f'    ("{name}", "{enum}"),\n' for name, (enum, _, _) in flags(root).items())
    return NOTE + f"pub const FLAGS: &[(&str, &str)] = &[\n{rows}];\n"


def emit_flags(root):
    """The enumerations, each with the parameters that it is of."""
    texts = {}
    for name, row in flags(root).items():
        texts.setdefault(row, []).append(f"`{name}`")
    return NOTE + "flags! {\n" + "".join(f"    /// {' and '.join(names)} of functions: `{yes}` is true.\n    {enum}: {yes}, {no};\n"
                                         for (enum, yes, no), names in texts.items()) + "}\n"


def survey(api, root):
    """[(C name, section, class, name, text)] of the functions, and {function: reason} for those that are by hand or left out."""
    known, entries, named, texts, reasons = Api(api), table(root), flags(root), [], {}
    known_closures, done = closures(api, known, entries), made_by_themselves(api)
    unknown = [name for name in entries if not name.endswith("*") and name not in known.functions and name not in known.callbacks]
    if unknown:
        raise SystemExit(f"{languages.TABLE} has {unknown[0]} for Rust, which the header has not")
    for function in api["functions"]:
        name = function["name"]
        entry = entries.get(name) or next((entries[one] for one in entries if one.endswith("*") and name.startswith(one[:-1])), {})
        try:
            if function["inline"] or name in done or entry.get("reason"):
                raise ByHand(entry.get("reason") or "values are made of Rust's own")
            is_optional = any(one["nullable"] and one["type"]["base"] in known_closures for one in function["parameters"])
            for ending, taken in (("", None), ("_with", known_closures)) if is_optional else (("", known_closures),):
                one = Function(known, named, function, entry, taken)
                one.name += ending
                owner = "StateReader" if one.owner == "State" and function["threads"] == "any" else one.owner
                texts.append((name, function["section"], owner, one.name, one.text()))
        except (Unsupported, ByHand) as why:
            reasons[name] = str(why)
    return texts, reasons


def emit(api, root):
    """Where a comment speaks of a function that is generated, it is a link to that."""
    files, texts = {}, survey(api, root)[0]
    paths = {name: f"{owner}::{own}".removeprefix("::") for name, _, owner, own, _ in texts}
    for _, section, owner, _, text in texts:
        text = re.sub(r"\[`(\w+)`\]\(accel_sys::\w+\)", lambda link: f"[`{paths[link[1]]}`](crate::{paths[link[1]]})" if link[1] in paths else link[0], text)
        files.setdefault("nn" if owner == "nn" else topics(api)[section], {}).setdefault(owner.replace("nn", ""), []).append(text)
    written = closures(api, Api(api), table(root))
    return {f"{FOLDER}/flags.rs": emit_flags(root), FLAGS_OF_OPERATORS: emit_flags_of_operators(root)} | emit_closures(api, written) | {f"{FOLDER}/{topic}.rs": f"{NOTE}use super::*;\n\n" + "\n".join(
        f"impl {owner} {{\n{chr(10).join(listed)}}}\n" if owner else re.sub("(?m)^    ", "", "\n".join(listed)) for owner, listed in classes.items())
        for topic, classes in files.items()}
