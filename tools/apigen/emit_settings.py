# SPDX-License-Identifier: Apache-2.0
"""The engine's structs of settings: for each options struct its fields with their defaults, each with the source of its value.
Each has a header of its own, in the folder of its header of include/accel, and so has each enumeration: a change of one compiles little anew.

Optimizers have tables of their own (src/optim), and read theirs by name.
"""

import re

import option
from emit_options import NOTE, STRUCTS, TABLES, camel, choice_names, short

TYPES = {"flag": "bool", "integer": "int64_t", "number": "double", "text": "std::string"}


def emit(api, root):
    structs = [struct for struct in api["structs"] if option.is_options(struct)]
    settings = without_optimizers(structs, api)
    topics = {struct["name"]: topic_of(struct, root) for struct in structs}
    paths = {struct["name"]: path_of(struct, topics[struct["name"]]) for struct in settings}
    files = {choice_path(alias): choice(alias, constants, api) for alias, constants in option.used_choices(settings).items()}
    for struct in settings:
        files[paths[struct["name"]]] = header(struct, {known["name"]: settings_name(known) for known in settings}, paths)
    for topic in sorted(set(topics.values())):
        files[f"{STRUCTS}/options/{topic}.hpp"] = traits([struct for struct in structs if topics[struct["name"]] == topic], paths)
    return files


def path_of(struct, topic):
    return f"{TABLES}/settings/{topic}/{short(struct).removesuffix('_options')}.hpp"


def choice_path(alias):
    return f"{TABLES}/choices/{alias.removeprefix('accel_').removesuffix('_t')}.hpp"


def include(path):
    return f'#include "{path.removeprefix("src/")}"\n'


def topic_of(struct, root):
    """The header of include/accel that defines it."""
    definition = re.compile(rf"\}} {struct['name']};")
    return next(file.stem for file in sorted((root / "include" / "accel").glob("*.h")) if definition.search(file.read_text()))


def without_optimizers(structs, api):
    of_optimizers = {parameter["type"]["base"] for function in api["functions"] for parameter in function["parameters"]
                     if function["name"].startswith("accel_optimizer_")}
    return [struct for struct in structs if struct["name"] not in of_optimizers]


def settings_name(struct):
    """accel_adam_options_t: AdamSettings; accel_dataloader_config_t: DataloaderConfig"""
    name = camel(short(struct))
    return name.removesuffix("Options") + "Settings" if name.endswith("Options") else name


def enumeration(alias):
    return camel(alias.removeprefix("accel_").removesuffix("_t"))


def constant(alias, name, names):
    return f"{enumeration(alias)}::k{camel(names[name])}"


def initial(described, field):
    """The initializer of a setting; empty where the type's own nothing is it."""
    value = described["default"]
    if value is None:
        return ""
    if described["kind"] == "flag":
        return "true" if value == "1" else "false"
    if described["kind"] == "choice":
        alias = field["type"]["base"]
        return constant(alias, value, choice_names(alias, described["constants"]))
    return value


def member_type(described, field):
    kind = described["kind"]
    plain = enumeration(field["type"]["base"]) if kind == "choice" else TYPES[kind]
    has_value = described["default"] is not None or described["required"] or kind == "text"
    return plain if has_value else f"std::optional<{plain}>"


def struct_of(struct, names):
    """`names`: {C struct: its settings}"""
    members, visits = [], []
    for place, field in enumerate(struct["fields"][1:]):
        described = field.get("option", {})
        if described.get("kind") in (*TYPES, "choice"):
            members.append(f"  Setting<{member_type(described, field)}> {field['name']}{{{initial(described, field)}}};\n")
            visits.append(f"    visit(table().fields[{place}], settings.{field['name']}...);\n")
        elif described and field["type"]["base"] in names:
            members.append(f"  {names[field['type']['base']]} {field['name']};\n")
    return (f"// {struct['name']}\nstruct {settings_name(struct)} {{\n{''.join(members)}\n"
            f"  static const OptionTable& table() {{ return option_tables::{short(struct)}; }}\n"
            "  // Calls visit(OptionField, Setting...) for each field, of any number of these.\n"
            "  template <typename Visit, typename... Settings>\n"
            f"  static void for_each(const Visit& visit, Settings&... settings) {{\n{''.join(visits)}  }}\n}};\n\n")


def choice(alias, constants, api):
    values = {known["name"]: known["value"] for known in api["constants"]}
    members = ", ".join(f"k{camel(called)} = {values[name]}" for name, called in choice_names(alias, constants).items())
    return (f"{NOTE}#pragma once\n\n#include <cstdint>\n\nnamespace accel {{\n\n"
            f"enum class {enumeration(alias)} : int32_t {{ {members} }};\n\n}}  // namespace accel\n")


def header(struct, names, paths):
    """`names`: {C struct: its settings}, `paths`: {C struct: their header}"""
    fields = [field for field in struct["fields"][1:] if field.get("option")]
    nested = {paths[field["type"]["base"]] for field in fields if field["type"]["base"] in paths}
    choices = {choice_path(field["type"]["base"]) for field in fields if field["option"]["kind"] == "choice"}
    files = sorted([*choices, *nested, "src/config/option_table.hpp", "src/config/setting.hpp"])
    return (f"{NOTE}#pragma once\n\n#include <cstdint>\n#include <optional>\n#include <string>\n\n" + "".join(map(include, files)) +
            f"\nnamespace accel {{\n\nnamespace option_tables {{\nextern const OptionTable {short(struct)};\n}}\n\n" +
            struct_of(struct, names) + "}  // namespace accel\n")


def trait(struct, paths):
    name = struct["name"]
    settings = f"  using Settings = {settings_name(struct)};\n" if name in paths else ""
    return (f"template <>\nstruct OptionsStruct<{name}> {{\n{settings}"
            f"  static const OptionTable& table() {{ return option_tables::{short(struct)}; }}\n"
            f"  static {name} unset() {{ return {struct['init_macro']}; }}\n}};\n")


def traits(structs, paths):
    """How the structs of one topic are read."""
    tables = [] if all(struct["name"] in paths for struct in structs) else [f"{TABLES}/option_tables.hpp"]
    files = sorted(["src/capi/calls/options.hpp", *tables, *(paths[struct["name"]] for struct in structs if struct["name"] in paths)])
    return (f'{NOTE}#pragma once\n\n#include "accel.h"\n' + "".join(map(include, files)) +
            "\nnamespace accel::capi {\n\n" + "\n".join(trait(struct, paths) for struct in structs) + "\n}  // namespace accel::capi\n")
