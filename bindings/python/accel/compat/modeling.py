# SPDX-License-Identifier: Apache-2.0
"""The parts of a model: its modules, the model inside a prepared one, the sizes of its numbers."""

import sys
import types

from ..engine.torch_types import is_torch_model, is_torch_tensor
from ..modules.argument_types import check_model
from ..modules.module import PreparedModule
from ..training.compilation import is_compiled_module, wrapped_by_compilation


def has_4bit_bnb_layers(model):
    """Whether it has quantized layers of torch, of this package or of bitsandbytes: one that is not imported made none."""
    own = f"{__package__.rpartition('.')[0]}.big_models.quantized_layers"
    found = (getattr(sys.modules.get(module), name, None) for module in (own, "bitsandbytes.nn") for name in ("Linear4bit", "Linear8bitLt"))
    known = tuple(kind for kind in found if isinstance(kind, type))
    return bool(known) and any(isinstance(module, known) for module in model.modules())


def is_peft_model(model):
    """Whether it, or the model inside a prepared one, is of peft."""
    kind = getattr(sys.modules.get("peft"), "PeftModel", None)
    return kind is not None and isinstance(extract_model_from_parallel(model), kind)


def is_torch_xpu_tensor(tensor):
    """Whether a tensor of torch is on an XPU."""
    return is_torch_tensor(tensor) and tensor.device.type == "xpu"


def model_has_dtensor(model):
    """Whether it has parameters that are DTensors of torch."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and any(isinstance(parameter, kind) for parameter in model.parameters())


def _is_container(model):
    """Whether a model only wraps the one inside: a prepared one, or torch's for data parallelism."""
    if not is_torch_model(model):
        return isinstance(model, PreparedModule)
    from ..training.prepared_forward import WRAPPERS

    return isinstance(model, WRAPPERS)


def extract_model_from_parallel(model, keep_fp32_wrapper=True, keep_torch_compile=True, recursive=False):
    """The model inside a prepared one. With keep_fp32_wrapper=False its own forward is back, with keep_torch_compile=False it is not
    compiled, with `recursive` the modules in it are taken out of their containers too."""
    check_model("extract_model_from_parallel", model)
    compiled, inside = None, model
    if not _is_container(model) and wrapped_by_compilation(model) is not None:
        compiled, inside = model, wrapped_by_compilation(model)
    while _is_container(inside):
        inside = inside.module
    if not keep_fp32_wrapper and compiled is not None:
        _restore_forward(compiled)
    model = inside
    if not keep_torch_compile and wrapped_by_compilation(model) is not None:  # inside of a container
        model = wrapped_by_compilation(model)
    if recursive:
        for name, child in list(model.named_children()):
            setattr(model, name, extract_model_from_parallel(child, recursive=True))
    if not keep_fp32_wrapper:
        _restore_forward(model)
    if compiled is None or not keep_torch_compile:
        return model
    if is_compiled_module(compiled):
        return compiled if compiled._orig_mod is model else type(compiled)(model, compiled.dynamo_ctx)
    compiled.__dict__["_orig_mod"] = model
    return compiled


def _restore_forward(model):
    """Takes the wrappers around the forward away: prepare()'s, and those that were put there after _original_forward was saved."""
    if is_torch_model(model):
        from ..training.prepared_forward import restore_forward

        restore_forward(model)
    original = vars(model).pop("_original_forward", None)
    if original is None:
        return
    forward = model.forward
    while forward != original and hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
    model.forward = types.MethodType(getattr(forward, "__func__", forward), model)


def get_model_tp_size(model):
    """Over how many ranks the tensors of a transformers model are split: `model.tp_size`, else that of its configuration; None without."""
    if getattr(model, "tp_size", None) is not None:
        return model.tp_size
    configuration = getattr(getattr(model, "config", None), "distributed_config", None)
    return configuration.get("tp_size") if isinstance(configuration, dict) else getattr(configuration, "tp_size", None)


def is_split(model):
    """Whether torch or transformers has split its tensors over ranks."""
    return is_torch_model(model) and (model_has_dtensor(model) or (get_model_tp_size(model) or 1) > 1)


def get_module_children_bottom_up(model, return_fqns=False):
    """The modules of a model, children before their parents; with `return_fqns` pairs of path and module."""
    found, waiting = [], [("", model)]
    while waiting:
        path, module = waiting.pop()
        found.append((path, module))
        waiting += [(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]
    return [pair if return_fqns else pair[1] for pair in reversed(found)]


def get_module_class_from_name(module, name):
    """The class with this name of a module or of one below it; None if there is none."""
    if type(module).__name__ == name:
        return type(module)
    return next(filter(None, (get_module_class_from_name(child, name) for _, child in module.named_children())), None)
