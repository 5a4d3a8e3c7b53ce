# SPDX-License-Identifier: Apache-2.0
"""The builders of the crate `accel` of Rust, one for each options struct, and the enumerations of their choices."""

import re

from emit_rust import rust_name
from rust_types import NOTE, Api, camel, doc, of_flag, sentence, topics, variants

FOLDER = "bindings/rust/accel/src/generated"
# Objects that functions take beside the options, which so stay values that can be copied.
BESIDE = {"document_offsets": "Dataset::packed", "draft_model": "Model::generate_by_draft", "gradient_group": "State::local_sgd", "sampler": "DataLoader::with_sampler",
          "state": "State::load_checkpoint_in_model", "types": "Dataset::csv"}
# The type and the value of fields that are not numbers, by type or by name.
RULES = {"accel_value_t": ("impl Into<Value>", "self.1.keep({}.into(), Value::as_raw)"), "char": ("impl AsRef<str>", "self.1.text({}.as_ref())"),
         "accel_tensor_t": ("Tensor", "self.1.keep({}, |tensor| tensor.as_raw())"),
         "delimiter": ("u8", "{}.into()")}
# What is read and written in the place of a parameter of such a type.
STORED = {"impl Into<Value>": "Value", "impl AsRef<str>": "String"}


def rows(api, names, indent):
    """One line for each constant, below its comment."""
    docs = {constant["name"]: constant["doc"] for constant in api["constants"]}
    return "".join(f"{doc(sentence(docs[constant] or f'`{constant}`'), indent)}{indent}{variant} = {constant},\n"
                   for constant, variant in names.items())


def choices(api, known):
    for alias in api["aliases"]:
        if alias["name"] in known.choices and alias["name"] != "accel_dtype_t":
            meaning = sentence(alias["doc"] or f"`{alias['name']}`")
            yield (f"constants! {{\n{doc(meaning, '    ')}    {camel(alias['name'])} {{\n"
                   f"{rows(api, known.choices[alias['name']], ' ' * 8)}    }}\n}}\n")


def setting(known, field):
    """The name of a field's function, the type of its parameter, and how C's becomes of that."""
    base, name = field["type"]["base"], rust_name(field["name"])
    if name.endswith("_ms"):
        return name.removesuffix("_ms"), "Duration", "milliseconds({})"
    inner = (known.options[base], "self.1.keep({}, |options| &options.0 as *const _)") if base in known.options else None
    return name, *(RULES.get(name) or RULES.get(base) or inner or known.plain(field["type"], ""))


def setter(known, field):
    """The comment and the function of a field."""
    described, name = field["option"], rust_name(field["name"])
    text = of_flag(field["doc"]) if described["kind"] == "flag" else field["doc"]
    method, rust, value = setting(known, field)
    if described["kind"] == "choice" and described["default"]:
        text = f"{text[:text.rindex('Default')]}Default `{rust}::{known.choices[field['type']['base']][described['default']]}`"
    return (f"{doc(sentence(text), '    ')}    pub fn {method}(mut self, {method}: {rust}) -> Self {{\n        self.0.{name} = {value.format(method)};\n"
            "        self\n    }\n")


def listed(known, fields):
    """A line for each field: `field: what is read and written = function`."""
    for field in fields:
        method, rust, _ = setting(known, field)
        yield f"    {rust_name(field['name'])}: {STORED.get(rust, rust)} = {method},\n"


def builders(api, known, section):
    for struct in api["structs"]:
        if struct["name"] in known.options and struct["section"] == section:
            name = known.options[struct["name"]]
            given = [field for field in struct["fields"] if "option" in field]
            fields = [field for field in given if field["name"] not in BESIDE]
            setters = "\n".join(setter(known, field) for field in fields)
            derived, kept = ("Clone", "Kept") if "self.1" in setters else ("Clone, Copy", "()")
            beside = "".join(f" `{field['name']}`: `{BESIDE[field['name']]}()`." for field in given if field["name"] in BESIDE)
            # What is of one call, as tensors are, is not a configuration.
            word = "call_options" if any(field["type"]["base"] == "accel_tensor_t" for field in fields) else "crate::configuration::builder"
            yield (f"{word}! {{\n{doc(sentence(struct['doc']) + beside, '    ')}    #[derive({derived})]\n"
                   f"    {name}({struct['name']} = {struct['init_macro']}), {kept},\n{''.join(listed(known, fields))}}}\n\n"
                   f"impl {name} {{\n{setters}}}\n")


def emit(api, root):
    known = Api(api)
    errors = [constant["name"] for constant in api["constants"] if constant["name"].startswith("ACCEL_ERROR_")]
    files = {"choices": NOTE + "use crate::options::constants;\n\n" + "\n".join(choices(api, known)),
             "dtypes": f"{NOTE}dtypes! {{\n{rows(api, known.choices['accel_dtype_t'], '    ')}}}\n",
             "error_codes": f"{NOTE}error_codes! {{\n{rows(api, variants('accel_status_t', errors), '    ')}}}\n"}
    for section, topic in topics(api).items():
        texts = list(builders(api, known, section))
        if texts:
            text = "\n".join(texts)
            uses = "use crate::options::*;\n" if re.search(r", Kept,|milliseconds|call_options", text) else ""
            files[f"{topic}_options"] = f"{NOTE}use super::*;\n{uses}\n{text}"
    return {f"{FOLDER}/{name}.rs": text for name, text in files.items()}
