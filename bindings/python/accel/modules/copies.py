# SPDX-License-Identifier: Apache-2.0
"""Copies of models: copy.deepcopy() and pickle. A layer of the engine is made again with its arguments, a module of Python is put together
of its parts; then all tensors get their values."""

from .. import capi


def of_module(module):
    """The result of Module.__reduce__(): how to make the same module again."""
    state = {name: tensor.detach().clone() for name, tensor in capi.accel_module_state_dict(module.handle).items()}
    frozen = [name for name, tensor in module.named_parameters() if not tensor.requires_grad]
    extra = {name: tensor.detach().clone() for name, tensor in module.named_buffers() if name not in state}
    place = next(((tensor.dtype, tensor.device) for tensor in module.parameters() if tensor.dtype.is_floating_point), None)
    return _rebuild, (_plan(module), state, frozen, extra, _ties(module), place, module.training, dict(_quantizations(module)))


def _quantizations(module, path=""):
    """The arguments of quantize(), by the paths of the modules whose it was."""
    if module.__dict__.get("_quantization") is not None:
        yield path, module.__dict__["_quantization"]
    for name, part in module._modules.items():
        yield from _quantizations(part, f"{path}.{name}" if path else name)


def _ties(module):
    """(path, path of the parameter that stands there, too)"""
    first, ties = {}, []
    for name, tensor in capi.accel_module_state_dict(module.handle).items():
        key = (tensor.data_ptr(), tensor.shape)
        if tensor.numel() and first.setdefault(key, name) != name:
            ties.append((name, first[key]))
    return ties


def _plan(module):
    """How to make a module again: what makes it, with which arguments, and for modules of Python its attributes, tensors and parts."""
    model_hook = module.__dict__.get("_hf_handles", ())  # of accel.hooks: it belongs to one module
    hooks = [(hook.when, hook.function, hook.with_kwargs) for hook in module._hooks if hook not in model_hook]
    parts = [(name, _plan(part)) for name, part in module._modules.items()]
    if module._is_of_python:
        inside = {"handle", "_make", "_arguments", "_is_of_python", "_modules", "_tensors", "_hooks", "_hf_hook", "_hf_handles",
                  *module._modules, *module._tensors}
        attributes = {name: value for name, value in module.__dict__.items() if name not in inside}
        tensors = [(name, kind, getattr(module, name).detach().clone(), _is_persistent(module, name))
                   for name, kind in module._tensors.items()]
        return type(module), attributes, tensors, parts, hooks
    if module._is_made_of_parts:
        return type(module), None, None, parts, hooks
    if module._make is None:
        raise TypeError(f"{module!r} cannot be copied alone: it is a part of a model that the engine made")
    return module._make, module._arguments, None, [], hooks


def _is_persistent(module, name):
    return name in capi.accel_module_state_dict(module.handle)


def _make(plan):
    make, given, tensors, parts, hooks = plan
    if tensors is not None:
        made = make._of_tensors(given, tensors)
        for name, part in parts:
            made.add_module(name, _make(part))
    elif given is None:
        made = make(*(_make(part) for _, part in parts))
    else:
        args, kwargs = given
        made = make(*args, **kwargs)
    for hook in hooks:
        made._add_hook(*hook)
    return made


def _rebuild(plan, state, frozen, extra, ties, place, training, quantizations):
    made = _make(plan)
    if place is not None:
        made.to(*place)
    for path, source in ties:
        made.tie(path, source)
    for path, options in quantizations.items():
        made.get_submodule(path).quantize(**options)
    lacking = sorted(state.keys() - capi.accel_module_state_dict(made.handle).keys())
    if lacking:
        raise TypeError(f"the model cannot be copied: its copy lacks {', '.join(lacking[:3])}, which a part of it got that was quantized by itself, or an adapter; "
                        "expected quantize() of the whole model, or save it into a folder and open that again")
    for name, value in state.items():
        path, _, own = name.rpartition(".")
        if own.endswith("_quant_state"):  # text, whose length differs
            capi.accel_module_replace_tensor(made.get_submodule(path).handle, own, value)
    made.load_state_dict(state)
    for name, buffer in made.named_buffers():
        if name in extra:
            buffer.copy_(extra[name])
    for name, parameter in made.named_parameters():
        if name in frozen:
            parameter.requires_grad = False
    return made.train(training)
