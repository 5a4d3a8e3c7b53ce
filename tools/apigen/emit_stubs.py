# SPDX-License-Identifier: Apache-2.0
"""Type stubs of the low layer of Python: bindings/python/accel/capi.pyi, for editors and type checkers."""

import pathlib

import emit_swig
import function_shape
from go_types import Api

OF_THE_PACKAGE = ("accel_tensor_t", "accel_device_t")  # made as the package's own subclasses
MADE = {"out_values": "Sequence[Any]", "out_buffer": "str", "out_dimensions": "Tuple[int, ...]"}
NUMBERS = {"int32_t": "int", "int64_t": "int", "size_t": "int", "double": "float"}
TEMPLATE = pathlib.Path(__file__).parent / "capi.pyi.in"  # what does not depend on the header


class Types(Api):
    def __init__(self, api):
        super().__init__(api)
        self.handles = {handle["name"]: handle["struct"] for handle in api["handles"]}
        self.structs = {struct["name"] for struct in api["structs"]}

    def plain(self, base, pointers):
        """One value of a C type."""
        base = self.aliases.get(base, base)
        known = self.handles.get(base) or (base if base in self.structs - {"accel_value_t", "accel_buffer_t"} else None)
        return known or ("str" if base == "char" and pointers else NUMBERS.get(base, "Any"))

    def given(self, parameter, role):
        text = "Callable[..., Any]" if role == "callback" else self.plain(parameter["type"]["base"], parameter["type"]["pointers"])
        text = f"Sequence[{text}]" if parameter["length"] else text
        return f"Optional[{text}]" if parameter["nullable"] and text != "Any" and role != "callback" else text

    def made(self, kind, role):
        return "Any" if kind["base"] in OF_THE_PACKAGE else MADE.get(role) or ("int" if kind["base"] == "void" else self.plain(kind["base"], kind["pointers"]))


def declaration(function, types):
    given, made = [], []
    roles = [(parameter, role) for parameter, role, _ in function_shape.roles(function, types)]
    has_kwargs, callbacks = any(parameter["name"] == "kwargs" for parameter, _ in roles), [role for _, role in roles].count("callback")
    for parameter, role in roles:
        name = parameter["name"]
        if role.startswith("out_"):
            made.append(types.made(parameter["type"], role))
        elif has_kwargs and name in ("names", "kwargs"):
            given += ["kwargs: Optional[Mapping[str, Any]]"] * (name == "names")
        elif role == "callback" and callbacks > 1:
            given += ["callbacks: Tuple[Optional[Callable[..., Any]], ...]"] * (parameter is next(one for one, kind in roles if kind == "callback"))
        elif role not in ("length", "n_results", "room", "user_data", "destroy"):
            given.append(f"{name}{'_' * (name in ('lambda', 'from'))}: {types.given(parameter, role)}")
    if set(function["statuses"]) & set(emit_swig.INFORMATION):
        made.insert(0, "int")
    elif function["returns"]["type"]["base"] not in ("accel_status_t", "void"):
        made.insert(0, types.made(function["returns"]["type"], ""))
    result = made[0] if len(made) == 1 else f"Tuple[{', '.join(made)}]" if made else "None"
    return f"def {function['name']}({', '.join(given)}) -> {result}: ...\n"


def options(struct, kinds):
    """The body of a class of options."""
    defaults = emit_swig.settable(struct)
    given = "".join(f", {name}: {kinds[name]} = {default}" if default else f", {name}: Optional[{kinds[name]}] = None" for name, default in defaults.items())
    text = emit_swig.documentation_of_options(struct).replace("\\", "\\\\").replace("\n", "\n    ").replace("\n    \n", "\n\n")
    return f'    """{text}\n    """\n' + "".join(f"    {name}: {kinds[name]}\n" for name in defaults) + f"    def __init__(self{', *' * bool(given)}{given}) -> None: ...\n"


def emit(api, root):
    types = Types(api)
    classes = "".join(f"class {handle['struct']}: ...\n" for handle in api["handles"] if handle["name"] != "accel_error_t")
    classes = classes.replace("class accel_tensor: ...", "class accel_tensor:\n    def __getattr__(self, name: str) -> Any: ...\n")  # those of accel.Tensor
    for struct in api["structs"]:
        kinds = {field["name"]: types.plain(field["type"]["base"], field["type"]["pointers"]) for field in struct["fields"]}
        if struct["init_macro"]:
            classes += f"\nclass {struct['name']}:\n{options(struct, kinds)}"
        elif struct["name"] == "accel_device_t":
            classes += f"\nclass {struct['name']}:\n" + "".join(f"    {name}: {kind}\n" for name, kind in kinds.items())
    constants = "".join(f"{constant['name']}: {'float' if constant['type'] == 'double' else 'str' if constant['type'] == 'text' else 'int'}\n" for constant in api["constants"])
    functions = "".join(declaration(function, types) for function in api["functions"]
                        if not emit_swig.skipped(function) and function["name"] not in emit_swig.HAND_WRITTEN)
    functions += "def accel_tensor_from_blob(buffer: Any, dtype: int) -> Any: ...\n"
    return {"bindings/python/accel/capi.pyi": f"{TEMPLATE.read_text()}{classes}\n{constants}\n{functions}"}
