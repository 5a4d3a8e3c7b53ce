"""The engine's structs of settings: for each options struct its fields with their defaults, each with the source of its value.
Each header of include/accel has one of its own, so that a change of one topic compiles little anew.

Optimizers have tables of their own (src/optim), and read theirs by name.
"""

import re

import option
from emit_options import NOTE, STRUCTS, TABLES, camel, choice_names, short

TYPES = {"flag": "bool", "integer": "int64_t", "number": "double", "text": "std::string"}


def emit(api, root):
    structs = [struct for struct in api["structs"] if option.is_options(struct)]
    settings = without_optimizers(structs, api)
    topics = {struct["name"]: topic_of(struct, root) for struct in settings}
    files = {f"{TABLES}/choices.hpp": choices(settings, api), f"{STRUCTS}/option_structs.hpp": overloads(structs, topics)}
    for topic in topics.values():
        files[path_of(topic)] = header([struct for struct in settings if topics[struct["name"]] == topic], settings, topics)
    return files


def path_of(topic):
    return f"{TABLES}/settings/{topic}.hpp"


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


def enumerations(structs, api):
    values = {known["name"]: known["value"] for known in api["constants"]}
    return "".join(f"enum class {enumeration(alias)} : int32_t {{ " +
                   ", ".join(f"k{camel(called)} = {values[name]}" for name, called in choice_names(alias, constants).items()) +
                   " };\n" for alias, constants in option.used_choices(structs).items())


def choices(structs, api):
    return f"{NOTE}#pragma once\n\n#include <cstdint>\n\nnamespace accel {{\n\n{enumerations(structs, api)}\n}}  // namespace accel\n"


def header(structs, all_structs, topics):
    """The settings of one topic."""
    names = {struct["name"]: settings_name(struct) for struct in all_structs}
    own = topics[structs[0]["name"]]
    nested = {field["type"]["base"] for struct in structs for field in struct["fields"][1:] if field.get("option")} & names.keys()
    others = sorted({topics[name] for name in nested} - {own})
    files = [f"{TABLES}/choices.hpp", f"{TABLES}/option_tables.hpp", *map(path_of, others)]
    return (f"{NOTE}#pragma once\n\n#include <cstdint>\n#include <optional>\n#include <string>\n\n" + "".join(map(include, files)) +
            '#include "config/setting.hpp"\n\nnamespace accel {\n\n' +
            "".join(struct_of(struct, names) for struct in structs) + "}  // namespace accel\n")


def overloads(structs, topics):
    types = "".join(f"{settings_name(struct)} settings_type(const {struct['name']}*);\n" for struct in structs if struct["name"] in topics)
    lines = "".join(f"inline const OptionTable& table_of(const {struct['name']}*) {{ return option_tables::{short(struct)}; }}\n"
                    f"inline {struct['name']} unset_options(const {struct['name']}*) {{ return {struct['init_macro']}; }}\n"
                    for struct in structs)
    files = [f"{TABLES}/option_tables.hpp", *map(path_of, sorted(set(topics.values())))]
    return (NOTE + '#pragma once\n\n#include "accel.h"\n' + "".join(map(include, files)) +
            f"\nnamespace accel::capi {{\n\n{lines}\n// Which settings of the engine a struct becomes; never defined.\n{types}\n}}  // namespace accel::capi\n")
