# SPDX-License-Identifier: Apache-2.0
"""The interface of a package as data: the kind and the signature of each name, and the attributes of the objects that a training makes.

interface.py PACKAGE prints it as JSON. accelerate_interface.json is what it says of Accelerate 1.15.0 under torch 2.13.0 on the CPU;
test_torch_interface.py compares that with this package. The names are those of accelerate_names.json. As one of several ranks it prints the objects
alone, rank 0 does; accelerate_interface_of_ranks.json is that of two ranks.
"""

import enum
import functools
import importlib
import inspect
import json
import os
import pathlib
import sys
import types

NAMES = json.loads((pathlib.Path(__file__).parent / "accelerate_names.json").read_text())
# Modules whose import changes the process, and those of tools that ask on a terminal or start other programs.
_LEFT_OUT = ("utils.rich", "commands.menu")
_KINDS = {inspect.Parameter.POSITIONAL_ONLY: "position", inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.KEYWORD_ONLY: "keyword",
          inspect.Parameter.VAR_KEYWORD: "**"}


def _plain(value):
    """A value as text that is the same in every package."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (list, tuple)) and all(isinstance(part, (bool, int, float, str)) for part in value):
        return repr(list(value))
    kind = next((kind for kind in (dict, list) if isinstance(value, kind)), type(value))
    return repr(value) if kind.__module__ in ("datetime", "torch") else f"<{kind.__name__}>"


def signature(function):
    """[[name, kind, default] ...]; None where Python knows none."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[one.name, _KINDS.get(one.kind, ""), "" if one.default is one.empty else _plain(one.default)] for one in parameters]


def _member(owner, name):
    """A method with the signature that it has on an object; else "property", or the value."""
    static, value = inspect.getattr_static(owner, name), getattr(owner, name)
    if isinstance(static, (property, functools.cached_property)):
        return "property"
    if inspect.isclass(value) or not callable(value):
        return _plain(value)
    parameters = signature(value)
    is_bound = isinstance(static, (staticmethod, classmethod)) or inspect.ismethod(value)
    return ["method", parameters if is_bound or not parameters or parameters[0][1] in ("*", "**") else parameters[1:]]


def _is_own(owner, package):
    return owner.__module__.split(".")[0] == package


def _class(owner, package):
    """The signature of a class, and its public members that it has from this package."""
    names = {name for base in owner.__mro__ if _is_own(base, package) for name in vars(base) if not name.startswith("_")}
    if issubclass(owner, enum.Enum):
        return ["enum", {one.name: f"{_plain(one.value)}, shown as {one!s}" for one in owner}]
    return ["class", signature(owner), {name: _member(owner, name) for name in sorted(names)}]


def describe(value, package):
    """What a name means: its kind and what belongs to it."""
    if type(value).__name__ == "_Missing":  # it says so when it is used
        return ["stand-in"]
    if inspect.isclass(value):
        return _class(value, package)
    if isinstance(value, types.ModuleType):
        return ["module"]
    return ["function", signature(value)] if callable(value) else ["value", _plain(value)]


def names_of(package):
    """{module: {name: description}}; a name that a module before it has, too, stands there only."""
    seen, result = set(), {}
    for path in sorted(NAMES, key=lambda path: path in ("", "utils")):  # the two that collect the names of others come last
        if path.startswith(_LEFT_OUT):
            continue
        module = importlib.import_module(f"{package}.{path}".rstrip("."))
        for name in NAMES[path]:
            value = getattr(module, name, None)
            if name not in seen or isinstance(value, types.ModuleType):
                result.setdefault(path, {})[name] = ["missing"] if value is None and not hasattr(module, name) else describe(value, package)
            seen.add(name)
    return result


def objects_of(package):
    """{object: {attribute: "method", or its value as text}} of what a small training on one process makes."""
    import torch

    accel = importlib.import_module(package)
    accelerator = accel.Accelerator(cpu=True)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    rows = torch.utils.data.DataLoader(list(range(4)), batch_size=2)
    model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, rows)
    dispatcher = importlib.import_module(f"{package}.data_loader").prepare_data_loader(
        torch.utils.data.DataLoader(list(range(4)), batch_size=2), dispatch_batches=True, put_on_device=True, device=torch.device("cpu"))
    with accelerator.accumulate(model):
        accelerator.backward(model(torch.ones(1, 2)).sum())
        optimizer.step()
        schedule.step()
    for loop in (loader, dispatcher):
        list(loop)
    of_torch = set(dir(torch.utils.data.DataLoader)) | set(dir(rows))
    found = {"Accelerator": (accelerator, set()), "AcceleratorState": (accelerator.state, set()), "PartialState": (accel.PartialState(), set()),
             "GradientState": (accelerator.gradient_state, set()), "model": (model, set(dir(torch.nn.Linear(2, 1))) - {"module"}), "optimizer": (optimizer, set()),
             "scheduler": (schedule, set()), "loader": (loader, of_torch), "dispatcher": (dispatcher, of_torch)}
    return {kind: {name: _attribute(value, name) for name in sorted(set(dir(value)) - known) if not name.startswith("_")}
            for kind, (value, known) in found.items()}


def _attribute(owner, name):
    try:
        value = getattr(owner, name)
    except Exception as error:  # noqa: BLE001  (whatever it is, that is what the attribute says)
        return f"raises {type(error).__name__}"
    return "method" if callable(value) and not inspect.isclass(value) else _plain(value)


def interface(package):
    return {"names": names_of(package), "objects": objects_of(package)}


def _lines(value, depth=0):
    """JSON with a line for each name and each member."""
    if isinstance(value, dict) and depth < 3:
        body = ",\n".join(f"{json.dumps(key)}: {_lines(part, depth + 1)}" for key, part in value.items())
        return "{\n" + body + "\n}"
    return json.dumps(value)


if __name__ == "__main__":
    for name in ("HF_HOME", "XDG_CACHE_HOME", "ACCELERATE_CONFIG_FILE"):
        os.environ.pop(name, None)
    os.environ.update(CUDA_VISIBLE_DEVICES="", HOME="/home/user")  # as everywhere
    of_ranks = int(os.environ.get("WORLD_SIZE", "1")) > 1
    found = {"objects": objects_of(sys.argv[1])} if of_ranks else interface(sys.argv[1])
    if not of_ranks or os.environ["RANK"] == "0":
        print(_lines(found))
