# SPDX-License-Identifier: Apache-2.0
"""Makes a package of AOTInductor from a model: `accel compile` runs this with the Python that has torch.

usage: compile_model.py SETTINGS, as JSON: model (a script or a folder), output, device, dtype, dynamic_batch, dynamic_length, max_batch,
length, trust_remote_code

A script has `model`, a torch.nn.Module or a function without arguments that makes one, and `inputs`: a tensor, a tuple of the arguments, a
mapping of named ones, or a function that makes one of these. It may have `dynamic_shapes`, as torch.export.export() takes them. A folder is
one of a model of transformers, whose logits the package computes from `input_ids`.
"""

import json
import os
import platform
import re
import runpy
import sys

# What compilers use on their own.
INSTRUCTIONS = re.compile(r"s?sse|avx|amx|fma|f16c|bmi|abm|popcnt|movbe|gfni|vaes|vpclmulqdq|asimd|sve|i8mm|bf16")


class CannotCompile(Exception):
    """One line: what is wrong with what was given, and what to do."""


def instructions_of_processor(processors="/proc/cpuinfo"):
    with open(processors, encoding="utf-8") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return " ".join(name for name in line.partition(":")[2].split() if INSTRUCTIONS.match(name))
    return ""


def made(value):
    import torch

    return value() if callable(value) and not isinstance(value, torch.nn.Module) else value


def model_of_script(path):
    """The model, its inputs, and how their shapes change; None: they do not."""
    import torch

    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    names = runpy.run_path(path, run_name="accel_compile")
    for name in ("model", "inputs"):
        if name not in names:
            raise CannotCompile(f"{path} has no {name}; expected model, a torch.nn.Module, and inputs, a tuple of what it is called with")
    model, inputs = made(names["model"]), made(names["inputs"])
    if not isinstance(model, torch.nn.Module):
        raise CannotCompile(f"model of {path} is {type(model).__name__}; expected a torch.nn.Module")
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, (tuple, list, dict)):
        raise CannotCompile(f"inputs of {path} is {type(inputs).__name__}; expected a tensor, a tuple or a dict")
    return model, inputs if isinstance(inputs, dict) else tuple(inputs), names.get("dynamic_shapes")


def model_of_folder(settings):
    """The model of a folder of transformers; its forward takes input_ids and returns logits."""
    import torch

    try:
        import transformers
    except ImportError:
        raise CannotCompile(f"{settings['model']} is a folder, and {sys.executable} has no transformers; expected a script that makes the model, "
                            "or install transformers there") from None
    folder, trusts = settings["model"], settings["trust_remote_code"]
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trusts)
    named = next((name for name in config.architectures or () if hasattr(transformers, name)), "AutoModelForCausalLM")
    model = getattr(transformers, named).from_pretrained(folder, trust_remote_code=trusts)
    whole_forward = model.forward

    def forward(input_ids):
        return whole_forward(input_ids=input_ids, use_cache=False, return_dict=True).logits

    model.forward = forward
    settings["max_length"] = getattr(config, "max_position_embeddings", None)
    length = settings["length"] or min(16, settings["max_length"] or 16)
    return model, (torch.zeros(2, length, dtype=torch.int64),), None


def placed(value, settings):
    """With tensors that lie in order on the device, in the dtype."""
    import torch

    dtype = settings["dtype"] and getattr(torch, settings["dtype"])

    def place(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to(settings["device"], dtype if dtype and leaf.is_floating_point() else leaf.dtype).contiguous()

    return torch.utils._pytree.tree_map(place, value)


def with_two_rows(value):
    """A batch of one, or none, would be compiled as a fixed size."""
    import torch

    def widen(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0 or leaf.shape[0] > 1:
            return leaf
        return leaf.expand(2, *leaf.shape[1:]).contiguous() if leaf.shape[0] else leaf.new_zeros(2, *leaf.shape[1:])

    return torch.utils._pytree.tree_map(widen, value)


def dynamic_shapes_of(inputs, settings):
    import torch

    batch, length = (torch.export.Dim(name, min=1, **({"max": settings[most]} if settings.get(most) else {}))
                     for name, most in (("batch", "max_batch"), ("length", "max_length")))

    def shape(leaf):
        if not isinstance(leaf, torch.Tensor):
            return None
        dims = {}
        if settings["dynamic_batch"] and leaf.dim() > 0:
            dims[0] = batch
        if settings["dynamic_length"] and leaf.dim() > 1:
            dims[1] = length
        return dims

    return torch.utils._pytree.tree_map(shape, inputs)


def size_of(size, ranges):
    """A fixed size, or a symbol with its range."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    known = ranges.get(expression)
    described = {"symbol": str(expression)}
    if known is not None:
        described["min"] = int(known.lower)
        if getattr(known.upper, "is_Integer", False) and int(known.upper) < 2 ** 62:
            described["max"] = int(known.upper)
    return described


def inputs_of(program):
    """Each value that the program takes, in the order of the code."""
    from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument

    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    described = []
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, TensorArgument):
            value = values[spec.arg.name]
            described.append({"name": spec.arg.name, "dtype": str(value.dtype).removeprefix("torch."),
                              "shape": [size_of(size, program.range_constraints) for size in value.shape]})
        elif isinstance(spec.arg, ConstantArgument) and (spec.arg.value is None or isinstance(spec.arg.value, (bool, int, float, str))):
            described.append({"name": spec.arg.name, "value": spec.arg.value})
        else:
            raise CannotCompile(f"the input {spec.arg.name} is no tensor, and may change; expected tensors, and numbers that stay")
    return described


def tied_names(model):
    groups = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def argument_names(model, inputs):
    import inspect

    if isinstance(inputs, dict):
        return list(inputs)
    names = list(inspect.signature(model.forward).parameters)[:len(inputs)]
    return names if len(names) == len(inputs) else []


def compile_model(settings):
    import torch

    is_folder = os.path.isdir(settings["model"])
    model, inputs, shapes = model_of_folder(settings) if is_folder else model_of_script(settings["model"])
    dtype = settings["dtype"] and getattr(torch, settings["dtype"])
    model = model.eval().to(settings["device"], dtype)
    inputs = placed(inputs, settings)
    if settings["dynamic_batch"] or settings["dynamic_length"]:
        if shapes is not None:
            raise CannotCompile(f"{settings['model']} has dynamic_shapes; expected these, or --dynamic-batch and --dynamic-length")
        inputs = with_two_rows(inputs) if settings["dynamic_batch"] else inputs
        shapes = dynamic_shapes_of(inputs, settings)
    arguments, named = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    with torch.no_grad():
        program = torch.export.export(model, arguments, named, dynamic_shapes=shapes)
        description = {
            "libtorch": torch.__version__, "processor": instructions_of_processor() if platform.system() == "Linux" else "",
            "names": argument_names(model, inputs), "inputs": inputs_of(program),
            "parameters": [name for name, _ in model.named_parameters(remove_duplicate=False)],
            "buffers": [name for name in model.state_dict() if name not in dict(model.named_parameters(remove_duplicate=False))],
            "tied": tied_names(model)}
        torch._inductor.aoti_compile_and_package(
            program, package_path=settings["output"],
            # Threads are those of the process that calls it. Small weights would become numbers in the code, which no state dict changes.
            inductor_configs={"aot_inductor.metadata": {"accel": json.dumps(description)}, "cpp.dynamic_threads": True,
                              "always_keep_tensor_constants": True})


def main():
    settings = json.loads(sys.argv[1])
    try:
        import torch  # noqa: F401
    except ImportError as error:
        sys.exit(f"accel: {sys.executable} has no torch ({error}); expected --python PATH of a Python that has it, or it installed there")
    try:
        compile_model(settings)
    except CannotCompile as error:
        sys.exit(f"accel: {error}")
    print(f"accel: wrote {settings['output']}", file=sys.stderr)


if __name__ == "__main__":
    main()
