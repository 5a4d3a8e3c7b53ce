# SPDX-License-Identifier: Apache-2.0
"""Closures of Rust as callbacks: for each callback of one function the C function that calls a closure, in the module of its topic."""

import pathlib
import re

from emit_rust import NAMES, arguments, result, rust_name
from emit_rust_options import FOLDER
from function_shape import is_truth, roles
from rust_types import NOTE, of_flag, sentence, topics

HEAD = pathlib.Path(__file__).parent / "closures.rs.in"
# By role: what the closure is given, and the expression that makes it of C's; {1} is the type's name, {2} the length.
GIVEN = {"handle": ("&{1}", "&Lent::new({1}::from_raw({0}))"), "text": ("&str", "&text({0})"), "number": ("{1}", "{0}"),
         "value": ("&Value", 'Value::borrowed({0}).ok_or("{0}: expected a value")?'), "values": ("&[Value]", "Value::borrowed_slice({0}, {2})"),
         "numbers": ("&[{1}]", "if {2} == 0 {{ &[] }} else {{ std::slice::from_raw_parts({0}, {2}) }}"), "truth": ("bool", "{0} == 1"),
         "room": ("&mut [{1}]", "if {2} == 0 {{ &mut [] }} else {{ std::slice::from_raw_parts_mut({0}, {2}) }}"),
         "written": ("&mut {1}", "&mut {1}::shared_from_raw({0})")}
# The modules of the crate that have the closures of a topic.
MODULES = {"types": "tree", "communication": "work", "modules": "module", "optimizers": "optimizer", "data": "data", "accelerator": "accelerator",
           "checkpoints": "checkpoint", "tracking": "tracking", "configuration": "launch"}
MADE = {"out_value": ("Value", "made.into_raw()"), "out_handle": ("Tensor", "sys::accel_tensor_retain(made.as_raw())")}
# What runs the closure, by what C wants of it. NaN is not a factor: the library refuses it.
RUNS = {"double": "callback::run_for(f64::NAN, || {})", "accel_status_t": "callback::run(|| {})", "void": "callback::run(|| {});"}
HELD = {"again": "Fn{} + Send + 'static", "shared": "Fn{} + Send + Sync + 'static", None: "FnMut{} + Send + 'static"}


def role_of(callback, parameter, role):
    """Of tensors that are changed in place, and numbers that are written, another one."""
    if role == "handle" and "in place" in callback["summary"]:
        return "written"
    return "room" if parameter["direction"] == "inout" else "truth" if is_truth(parameter["type"], parameter["doc"]) else role


class Closure:
    """A callback that one closure is. `held`: how often it may run at once, a key of HELD."""

    def __init__(self, known, callback, held):
        self.callback, self.name = callback, callback["name"].removeprefix("accel_").removesuffix("_fn")
        self.returns, self.held, self.known = callback["returns"]["type"], held, known
        self.given, self.made, self.output = [], [], ""
        for parameter, role, _ in roles(callback, known):
            base, name = parameter["type"]["base"], rust_name(parameter["name"])
            words = name, known.handles.get(base) or NAMES.get(known.aliases.get(base, base)), parameter["length"]
            if role in MADE:
                kept = "leave NONE" in parameter["doc"].replace("Leave", "leave")
                self.output = (f"Option<{MADE[role][0]}>" if kept else MADE[role][0]), MADE[role][1], name, kept
            elif role not in ("user_data", "length"):
                kind, value = GIVEN[role_of(callback, parameter, role)]
                self.given.append(kind.format(*words))
                self.made.append(value.format(*words))

    def bound(self):
        answer = {"double": "f64"}.get(self.returns["c"]) or (self.output[0] if self.output else "")
        gives = "" if self.returns["c"] == "void" else f" -> CallbackResult{answer and f'<{answer}>'}"
        return HELD[self.held].format(f"({', '.join(self.given)}){gives}")

    def body(self):
        """What runs inside: the call of the closure, and what becomes of its answer."""
        called = f"function({', '.join(self.made)})"
        is_silent = self.returns["c"] == "void"
        call = f"callback::closure::<F>(user_data){called.removeprefix('function')}" if self.held else \
            f"callback::closure::<Exclusive<F>>(user_data).with(|function| {f'{{ {called}; Ok(()) }}' if is_silent else called})"
        if is_silent and self.held:
            return f"{{\n            {call};\n            Ok(())\n        }}"
        if not self.output:
            return call
        _, value, out, kept = self.output
        stored = f"if let Some(made) = made {{\n                *{out} = {value};\n            }}" if kept else f"*{out} = {value};"
        return f"{{\n            let made = {call}?;\n            {stored}\n            Ok(())\n        }}"

    def documentation(self, taken):
        """What the closure does, and what it is given, for the function that takes it."""
        hidden = {"user_data", *(parameter["length"] for parameter in self.callback["parameters"])}
        shown = [parameter for parameter in self.callback["parameters"] if parameter["direction"] != "out" and parameter["name"] not in hidden]
        meant = "".join(f" `{one['name']}`: {sentence(of_flag(one['doc']))}" for one in shown)
        gives = "".join(f" Gives: {sentence(one['doc'].replace('Leave NONE to keep it', '`None` keeps it'))}" for one in self.callback["parameters"] if one["direction"] == "out")
        listed = ", ".join(one["name"] for one in shown)
        own = re.sub(r"[;.] NULL: [^;.]+", "", taken["doc"])
        return f"* `{taken['name']}({listed})`: {sentence(own)} {self.callback['summary']} {self.callback['description']}".rstrip() + meant + gives

    def text(self):
        listed = arguments(self.callback["parameters"], ()).replace("accel_", "sys::accel_")
        answer, name = result(self.returns, ()).replace("accel_status_t", "i32"), self.callback["name"]
        return (f"/// A closure as [`{name}`](sys::{name}).\npub(crate) fn {self.name}<F>(function: F) -> Callback<sys::{name}>\nwhere\n    F: {self.bound()},\n{{\n"
                f"    unsafe extern \"C\" fn call<F>({listed}){answer}\n    where\n        F: {self.bound()},\n    {{\n"
                f"        {RUNS[self.returns['c']].replace('{}', self.body())}\n    }}\n"
                f"    let (data, destroy) = hand_over({'function' if self.held else 'Exclusive::new(function)'});\n    (Some(call::<F>), data, destroy)\n}}\n")


def closures(api, known, entries):
    """{callback: its closure} of the callbacks that functions take alone, and that no reason in the table keeps by hand."""
    found = {}
    for function in api["functions"]:
        taken = [parameter["type"]["base"] for parameter in known.callback_parameters(function)]
        entry = entries.get(taken[0], {}) if len(taken) == 1 else {"reason": "several"}
        if not entry.get("reason"):
            found[taken[0]] = Closure(known, known.callbacks[taken[0]], entry.get("held"))
    return found


def module_of(closure, api):
    return MODULES[topics(api)[closure.callback["section"]]]


def emit(api, found):
    files = {}
    for closure in found.values():
        files.setdefault(module_of(closure, api), []).append(closure.text())
    return {f"{FOLDER}/{module}_closures.rs": NOTE + HEAD.read_text() + "\n".join(texts) for module, texts in files.items()}
