# SPDX-License-Identifier: Apache-2.0
"""Sequences that are split between the split layers of a torch model: from the first of its blocks to the last one, a rank has its positions alone,
the last dimension but one of what blocks pass on."""

import torch

from ..generated.split_operators import parallel_gather, parallel_scatter

_STATES = "hidden_states"  # the parameter of transformers' modules that has what blocks pass on


class SequenceBlocks:
    """The list of blocks, each of which has split layers."""

    def __init__(self, model, layers, group, ranks):
        self.group, self.ranks = group, ranks
        pairs = [layer for layer in layers if layer.gives_part or layer.takes_part]
        lists = sorted({path for path in (_list_of(layer.path) for layer in pairs)}, key=str)
        if len(lists) != 1 or lists[0] is None:
            raise ValueError(f"sequence_parallel: the split layers of {type(model).__name__} are in {', '.join(map(str, lists))}; expected one list of blocks, "
                             "such as a torch.nn.ModuleList, in which sequences are split")
        self.prefix = f"{lists[0]}."
        self.blocks = list(model.get_submodule(lists[0]).children())
        self.modules = {path: module for path, module in model.named_modules() if path.startswith(self.prefix)}
        self.styles = {layer.path: layer for layer in layers if self.has(layer.path)}
        wrong = [layer for layer in self.styles.values() if not (layer.gives_part or layer.takes_part or layer.sums_gradients or layer.style == "replicate")]
        if wrong:
            raise ValueError(f"sequence_parallel: {wrong[0].path} has the style {wrong[0].style!r}, which needs whole sequences; expected "
                             "sequence_parallel=False")
        for path, module in self.modules.items():
            is_norm = all(parameter.dim() < 2 for parameter in module.parameters(recurse=False))
            if path not in self.styles and not is_norm:
                raise ValueError(f"sequence_parallel: {path} is not split and would work on a rank's positions alone; expected a style for it, or "
                                 "'sequence_parallel' if it computes each position by itself")
        self.doors = {layer.parent for layer in self.styles.values() if layer.gives_part and self._is_region(layer.parent)}

    def has(self, path):
        return path.startswith(self.prefix)

    def is_gathered(self, parent):
        """Whether a module gets the whole sequence, so that it can take the length from its input."""
        return parent in self.doors

    def _is_region(self, parent):
        """Whether all parameters inside of a module are those of split layers, or on a rank's heads."""
        own = [path for path, module in self.modules.items() if (path == parent or path.startswith(f"{parent}.")) and
               next(module.parameters(recurse=False), None) is not None]
        return all(path in self.styles and self.styles[path].style not in ("replicate", "sequence_parallel") for path in own)

    def add_hooks(self, region):
        """After those of the layers."""
        self.blocks[0].register_forward_pre_hook(self._begin, with_kwargs=True)
        self.blocks[-1].register_forward_hook(self._end)
        for path in self.doors:
            self.modules[path].register_forward_pre_hook(self._gather, with_kwargs=True)
        for path, module in self.modules.items():
            layer = self.styles.get(path)
            if layer is None or layer.style == "replicate":
                region.sum_gradients(module.parameters(recurse=False))
            elif layer.takes_part and layer.module.bias is not None:
                region.sum_gradients([layer.module.bias])
            if isinstance(module, torch.nn.modules.dropout._DropoutNd) and region.random.is_needed:
                region.random.around(module)

    def _begin(self, module, args, kwargs):
        return _with_states(module, args, kwargs, self._own_positions)

    def _own_positions(self, states):
        if states.shape[-2] % self.ranks != 0:
            raise ValueError(f"sequence_parallel: a sequence of {states.shape[-2]} positions cannot be shared by {self.ranks} ranks; expected a multiple")
        return parallel_scatter(states, self.group, -2)

    def _gather(self, module, args, kwargs):
        return _with_states(module, args, kwargs, lambda states: parallel_gather(states, self.group, -2, replicated=False))

    def _end(self, module, args, output):
        states = output[0] if isinstance(output, tuple) else output
        whole = parallel_gather(states, self.group, -2)
        return (whole, *output[1:]) if isinstance(output, tuple) else whole


def _list_of(path):
    """The path of the list that a module is in an item of; None: of none."""
    parts = path.split(".")
    place = next((number for number, part in enumerate(parts) if part.isdigit()), None)
    return None if not place else ".".join(parts[:place])


def _with_states(module, args, kwargs, change):
    """The arguments of a module, with another tensor for what blocks pass on."""
    if args and isinstance(args[0], torch.Tensor):
        return (change(args[0]), *args[1:]), kwargs
    if isinstance(kwargs.get(_STATES), torch.Tensor):
        return args, {**kwargs, _STATES: change(kwargs[_STATES])}
    raise TypeError(f"sequence_parallel: {type(module).__name__} was called without a tensor; expected one as its first argument, or as {_STATES}")
