"""The builders of the crate `accel` of Rust, one for each options struct, and the enumerations of their choices."""

from emit_rust import rust_name
from rust_types import NOTE, Api, camel, doc, of_flag, sentence, topics

FOLDER = "bindings/rust/accel/src/generated"
NUMBERS = {"integer": {4: "i32", 8: "i64"}, "number": {8: "f64"}}
AS_CHARACTER = ("delimiter",)
# Objects that functions take beside the options, which so stay values that can be copied.
BESIDE = {"comm_state_option": "State::prepare_model_with_power_sgd", "ddp_options": "State::prepare_model", "document_offsets": "Dataset::packed",
          "gradient_group": "State::local_sgd", "sampler": "DataLoader::with_sampler", "types": "Dataset::csv"}
KEPT = {"accel_value_t": ("impl Into<Value>", "{}.into(), Value::as_raw"), "accel_tensor_t": ("Tensor", "{}, |tensor| tensor.as_raw()")}


def choices(api, known):
    docs = {constant["name"]: constant["doc"] for constant in api["constants"]}
    for alias in api["aliases"]:
        if alias["name"] in known.choices:
            name = camel(alias["name"])
            meaning = sentence(alias["doc"] or f"`{alias['name']}`")
            rows = "".join(doc(sentence(docs[constant] or f"`{constant}`"), "        ") + f"        {variant} = {constant},\n"
                           for constant, variant in known.choices[alias["name"]].items())
            yield f"constants! {{\n{doc(meaning, '    ')}    {name} {{\n{rows}    }}\n}}\n"


def setter(known, field):
    """The comment and the function of a field."""
    described, base, name = field["option"], field["type"]["base"], rust_name(field["name"])
    kind, text = described["kind"], field["doc"]
    target = method = name
    if kind == "flag":
        rust, value, text = "bool", f"{name}.into()", of_flag(text)
    elif kind == "choice":
        rust, value = camel(base), f"{name}.into()"
        if described["default"]:
            text = f"{text[:text.rindex('Default')]}Default `{camel(base)}::{known.choices[base][described['default']]}`"
    elif kind == "text":
        rust, value = "&str", f"self.1.text({name})"
    elif base in KEPT:
        rust, value = KEPT[base][0], f"self.1.keep({KEPT[base][1].format(name)})"
    elif name.endswith("_ms"):
        method = name.removesuffix("_ms")
        rust, value = "Duration", f"milliseconds({method})"
    else:
        rust, value = NUMBERS[kind][field["size"]], name
        rust, value = ("u8", f"{name}.into()") if name in AS_CHARACTER else (rust, value)
    return (f"{doc(sentence(text), '    ')}    pub fn {method}(mut self, {method}: {rust}) -> Self {{\n        self.0.{target} = {value};\n"
            "        self\n    }\n")


def builders(api, known, section):
    for struct in api["structs"]:
        if struct["name"] in known.options and struct["section"] == section:
            name = known.options[struct["name"]]
            fields = [field for field in struct["fields"] if "option" in field]
            setters = "\n".join(setter(known, field) for field in fields if field["name"] not in BESIDE)
            keeps = " keeps" if "self.1" in setters else ""
            beside = "".join(f" `{field['name']}`: `{BESIDE[field['name']]}()`." for field in fields if field["name"] in BESIDE)
            yield (f"builder! {{\n{doc(sentence(struct['doc']) + beside, '    ')}    {name}({struct['name']} = {struct['init_macro']}){keeps}\n}}\n\n"
                   f"impl {name} {{\n{setters}}}\n")


def emit(api, root):
    known = Api(api)
    files = {"choices": NOTE + "use crate::options::constants;\n\n" + "\n".join(choices(api, known))}
    for section, topic in topics(api).items():
        texts = list(builders(api, known, section))
        if texts:
            files[f"{topic}_options"] = f"{NOTE}use super::*;\nuse crate::options::*;\n\n" + "\n".join(texts)
    return {f"{FOLDER}/{name}.rs": text for name, text in files.items()}
