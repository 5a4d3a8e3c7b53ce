# SPDX-License-Identifier: Apache-2.0
"""Models of torch with tensors on the device meta, which have no memory: they get values before the model is prepared."""

import functools
import itertools

import torch

from .align_devices import has_offloaded_params


def ensure_weights_retied(param_init_fn, model, device=None):
    """param_init_fn, after which the parameters of a module are the same objects with other data: so tied ones stay tied, and optimizers
    that were made before have them. `model` and `device` are there for scripts that give them; neither is needed."""

    def initialize(module):
        former = dict(module._parameters)
        param_init_fn(module)
        for name, parameter in former.items():
            made = module._parameters.get(name)
            if parameter is not None and made is not None and made is not parameter:
                torch.utils.swap_tensors(parameter, made)
                module._parameters[name] = parameter
        return module

    return initialize


def initialize(model, plugin, gets_weights, param_init_fn=None, left_out=frozenset()):
    """Calls param_init_fn, or the plugin's, for each module with tensors of its own on the device meta, outer modules first; what a call makes
    of inner ones is taken. Afterwards none may be left, unless the rank `gets_weights` from another one under cpu_ram_efficient_loading; under
    sync_module_states alone it has memory for them, as in Accelerate. Weights that a hook brings for each forward may stay away, and modules
    that are `left_out` stay as they are."""
    function = param_init_fn or (None if plugin is None else plugin.param_init_fn)
    may_stay = function is None and gets_weights and plugin.cpu_ram_efficient_loading
    if function is None and gets_weights and plugin.sync_module_states and not may_stay:
        function = functools.partial(torch.nn.Module.to_empty, device="cpu", recurse=False)
    if function is not None:
        function = ensure_weights_retied(function, model)
        for module in model.modules():
            if module not in left_out and _own_on_meta(module):
                function(module)
    for name, module in () if may_stay else model.named_modules():
        left = () if module in left_out else _own_on_meta(module)
        if left:
            where = f"{type(model).__name__}.{name}" if name else type(model).__name__
            raise ValueError(f"{where} ({type(module).__name__}) has {', '.join(left)} on the device meta, without memory"
                             f"{'' if function is None else ', after param_init_fn'}: expected weights; call to_empty() and initialize them, or "
                             "give FullyShardedDataParallelPlugin(param_init_fn=...), or a model in stages pipeline={'param_init_fn': ...}, a function "
                             "that does, or a model in stages the files with them, pipeline={'checkpoint': ...}")


def _own_on_meta(module):
    """The names of its own parameters and buffers that have no memory, and get none from a hook."""
    if has_offloaded_params(module):
        return []
    own = itertools.chain(module._parameters.items(), module._buffers.items())
    return [name for name, tensor in own if tensor is not None and tensor.is_meta]
