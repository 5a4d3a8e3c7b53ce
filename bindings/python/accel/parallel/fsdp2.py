# SPDX-License-Identifier: Apache-2.0
"""Accelerate's functions around sharding of version 2, for scripts of torch that call them. The engine shards when a model is prepared."""

import re

import torch

from ..compat.modeling import extract_model_from_parallel
from ..training.compilation import without_compilation
from ..training.prepared_forward import forward_of
from .collectives import broadcast_object_list, reduce
from .gathered_parameters import gathered


def _plugin(accelerator, version=None):
    plugin = accelerator.state.fsdp_plugin
    if plugin is None or version not in (None, plugin.fsdp_version):
        found = "no fsdp_plugin" if plugin is None else f"one of fsdp_version {plugin.fsdp_version}"
        raise ValueError(f"the Accelerator has {found}: expected FullyShardedDataParallelPlugin({f'fsdp_version={version}' if version else ''})")
    return plugin


def fsdp2_prepare_model(accelerator, model):
    """The model, sharded; one that is prepared comes back as it is. Its parameters stay the same objects."""
    _plugin(accelerator, 2)
    return accelerator.prepare_model(model)


def fsdp2_load_full_state_dict(accelerator, model, full_sd, cpu_offload=False):
    """Loads whole tensors, which only the main process needs to have, into a sharded model; one after the other is sent and cut. Where shards
    are is what the model was prepared with: `cpu_offload` changes nothing. The model."""
    inner = extract_model_from_parallel(model)
    tensors = {name: tensor for name, tensor in _canonical_tensors(inner).items() if torch.is_tensor(tensor)}
    lacking = [name for name in tensors if name not in full_sd] if accelerator.is_main_process else None
    lacking = broadcast_object_list([lacking])[0]
    if lacking:
        raise KeyError(f"the state dict lacks {', '.join(lacking[:5])}{' and others' if len(lacking) > 5 else ''}: expected all {len(tensors)} "
                       "tensors of the model, on the main process")
    problem, done = None, set()
    for name, tensor in tensors.items():
        if id(tensor) in done:  # tied
            continue
        done.add(id(tensor))
        with gathered([tensor], modifier_rank=0), torch.no_grad():
            if accelerator.is_main_process and tensor.shape != full_sd[name].shape:
                problem = problem or f"{name} has shape {list(full_sd[name].shape)} in the state dict: expected {list(tensor.shape)}"
            elif accelerator.is_main_process:
                tensor.copy_(full_sd[name])
    problem = broadcast_object_list([problem])[0]  # so that all ranks stop at the same place
    if problem:
        raise ValueError(problem)
    return model


def _canonical_tensors(model):
    """The parameters and persistent buffers by name, themselves and not copies."""
    return fsdp2_canonicalize_names(model.state_dict(keep_vars=True))


def fsdp2_switch_optimizer_parameters(optimizer, mapping):
    """Other parameters for an optimizer that is not prepared yet. `mapping` has them by the data pointers of the former ones. Parameters that
    are in it themselves stay: those of a model are the same objects before and after it is sharded."""
    new = {id(parameter) for parameter in mapping.values()}

    def of(parameter):
        if id(parameter) in new:
            return parameter
        pointer = parameter.data_ptr if isinstance(parameter.data_ptr, int) else parameter.data_ptr()
        if pointer not in mapping:
            raise KeyError(f"a parameter of shape {list(parameter.shape)} of the optimizer is not in the mapping: expected data_ptr() of each; "
                           "without it the parameter would not be trained")
        return mapping[pointer]

    switched = [[of(parameter) for parameter in group["params"]] for group in optimizer.param_groups]
    is_changed = any(one is not former for group, ones in zip(optimizer.param_groups, switched) for one, former in zip(ones, group["params"]))
    if is_changed and getattr(optimizer, "_is_accelerate_prepared", False):
        raise ValueError("the optimizer is prepared, and its parameters stay those of the model: expected to switch them before prepare()")
    for group, parameters in zip(optimizer.param_groups, switched):
        group["params"] = parameters


def fsdp2_canonicalize_names(named_params):
    """Without what checkpointing and compilation add to the names."""
    return {without_compilation(name.replace("._checkpoint_wrapped_module", "")): value for name, value in named_params.items()}


def fsdp2_apply_ac(accelerator, model):
    """The forward of each group of this model is computed again in backward, once it is sharded. The model, to be prepared."""
    if forward_of(model) is not None:
        raise ValueError(f"the {type(model).__name__} is prepared already: expected fsdp2_apply_ac() before, or activation_checkpointing=True of the plugin")
    _plugin(accelerator).checkpoint_activations_of(model)
    return model


def fsdp2_prepare_auto_wrap_policy(fsdp2_plugin, model):
    """A function that says whether a module of this model is a group of its own; None if the plugin has no policy."""
    from torch.distributed.fsdp import wrap

    policy = getattr(fsdp2_plugin.auto_wrap_policy, "func", fsdp2_plugin.auto_wrap_policy)
    if policy is wrap.size_based_auto_wrap_policy:
        return lambda module: sum(parameter.numel() for parameter in module.parameters()) > fsdp2_plugin.min_num_params
    if policy is not wrap.transformer_auto_wrap_policy:
        return None
    names = fsdp2_plugin.transformer_cls_names_to_wrap
    names = list(getattr(model, "_no_split_modules", None) or []) if names is None else names
    known = {type(module).__name__: type(module) for module in model.modules()}
    for name in names:
        if name not in known:
            raise ValueError(f"Could not find the transformer layer class {name} in the model.")
    classes = tuple(known[name] for name in names)
    return lambda module: isinstance(getattr(module, "_checkpoint_wrapped_module", module), classes)


class _GradScaler(torch.amp.GradScaler):
    """Skips a step on all ranks when the gradients of one have overflowed, of which each has its own rows."""

    def _unscale_grads_(self, *args, **kwargs):
        found = super()._unscale_grads_(*args, **kwargs)
        anywhere = reduce(torch.stack([value.cpu() for value in found.values()]).sum() if found else torch.zeros(()), "sum")
        if not found and anywhere:
            found[torch.device(self._device)] = torch.ones((), device=self._device)
        for value in found.values():
            value.fill_(float(anywhere > 0))
        return found


def get_fsdp2_grad_scaler(**kwargs):
    """A torch.amp.GradScaler for a loop that scales losses itself; the engine does so under mixed_precision="fp16"."""
    return _GradScaler(**kwargs)


def get_parameters_from_modules(modules, model, device):
    """The parameters of modules: a list of them, or a regular expression of the whole names of some in the model, which are moved to the
    device. An empty set for None."""
    if isinstance(modules, str):
        expression = re.compile(modules)
        modules = [module.to(device) for name, module in model.named_modules() if expression.fullmatch(name)]
    return {parameter for module in modules or () for parameter in module.parameters()}
