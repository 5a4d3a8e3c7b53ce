# SPDX-License-Identifier: Apache-2.0
"""The methods of Python's classes that are one call of the engine: bindings/python/accel/generated/methods.py, after api/languages.yaml."""

import textwrap

import languages
from emit_python import FOLDER, NOTE, Class, choices
from emit_swig import INFORMATION
from function_shape import is_truth
from go_types import Api

IMPORTS = "from typing import Any, Optional\n\nfrom .. import capi\nfrom ..engine.scopes import scope\nfrom ..state.options import fill\n"
TYPES = {"out_buffer": "str", "out_dimensions": "tuple", "out_address": "int", "char": "str", "int32_t": "int", "int64_t": "int", "size_t": "int", "double": "float"}


class Method(Class):
    """A method, or a function where the table gives no object."""

    def __init__(self, row, section, structs, named):
        super().__init__(row, section, structs, named)
        objects = [name for name, (_, role) in self.inputs.items() if role == "handle" and not row.own(name)] if section["object"] else []
        row.changed.update({name: section["object"] for name in objects[:1]})
        self.inside, self.is_static, self.around = "    " * bool(section["object"]), not objects, section.get("around")

    def default(self, name):
        """None: what is not given comes from the environment, or is the engine's."""

    def result(self):
        """The type, and the call with what stands around it."""
        function, returns = self.row.function, self.row.function["returns"]
        output, role = next(((one, role) for one, role, _ in self.row.roles if role.startswith("out_")), (returns, ""))
        kind, doc = output["type"], output["doc"]
        arguments = ", ".join(map(self.argument, (name for name, (_, role) in self.inputs.items() if not role.startswith("out_"))))
        call = f"capi.{function['name']}({arguments})"
        if role == "out_scope":
            return "scope", f"return scope({call.removesuffix(')').replace('(', ', ' * bool(arguments), 1)})"
        if not role and kind["base"] == "accel_status_t":
            return ("bool", f"return {call} == capi.ACCEL_OK") if set(INFORMATION) & set(function["statuses"]) else ("None", call)
        if is_truth(kind, doc):
            return "bool", f"return bool({call})" if role else f"return {call} == 1"
        is_map = doc.startswith("A map") or '{"' in doc + function["summary"]
        call = self.around.format(call=call, first=self.row.listed[0][0]) if self.around else call
        return TYPES.get(role) or role in ("", "out_number") and TYPES.get(kind["base"]) or ("dict" if is_map else "Any"), f"return {call}"

    def text(self, is_property=False):
        made, call = self.result()
        listed = ", ".join(["self"] * (not self.is_static) + [self.declared(*part) for part in self.row.listed])
        decorator = "@property\n" if is_property else "@staticmethod\n" * bool(self.is_static and self.inside)
        return textwrap.indent(f"{decorator}def {self.row.name}({listed}) -> {made}:\n{self.documentation()}    {call}\n", self.inside)


def emit(api, root):
    structs, named, known = {struct["name"]: struct for struct in api["structs"]}, choices(api), Api(api)
    parts, functions, files = [], [], {}
    for name, section in languages.read(root, "python")["methods"].items():
        section = {"object": "", "rows": "", "properties": "", "self": "self", **section}
        made = [Method(row, section, structs, named).text() for row in languages.rows(section, known)]
        made += [Method(row, section, structs, named).text(True) for row in languages.rows({**section, "rows": section["properties"]}, known)]
        if "imports" in section:
            files[f"{FOLDER}/{name}.py"] = NOTE.format(section["title"]) + section["imports"] + "\n\n" + "\n\n".join(made)
        elif section["object"]:
            parts.append(f"class {name}:\n    __slots__ = ()\n\n" + "\n".join(made))
        else:
            functions += made
    body = "\n\n".join([*functions, *parts])
    title = "What is one call of the engine: functions, and the methods of classes, which derive from those here."
    return {f"{FOLDER}/methods.py": NOTE.format(title) + IMPORTS + "\n\n" + body, **files}
