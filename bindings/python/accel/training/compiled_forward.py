# SPDX-License-Identifier: Apache-2.0
"""The compilation of a model of torch that is prepared. The engine's call is around what torch.compile makes, and in no graph."""

import torch

from ..generated.enums import DynamoBackend
from .compilation import compile_in_place, compile_regions, has_repeated_blocks, is_compiled_module, refuse_compilation, regions


class Compilation:
    """The parts of a model that torch.compile compiles, as a plugin says; None: nothing. in_place: the model itself stays what is prepared, as
    under DeepSpeed's settings, else what torch.compile makes of it is. Repeated blocks stay what they are in a sharded model, too."""

    def __init__(self, model, plugin, in_place=False):
        self.model, self.in_place, self.plugin = model, in_place, plugin
        is_off = plugin is None or plugin.backend == DynamoBackend.NO or is_compiled_module(model)
        self.settings = None if is_off else plugin.to_kwargs()
        self.is_whole = is_off or not plugin.use_regional_compilation or not has_repeated_blocks(model)
        self.parts = () if self.is_whole else list(regions(model))

    def leave(self, what):
        """Compiles nothing of a model of which ranks have parts, and which exchanges inside of its forward."""
        if self.settings is not None:
            refuse_compilation(self.plugin, f"{what} of a {type(self.model).__name__} are not compiled; expected the whole model on each rank,")
        self.settings = None

    def of_group(self, module):
        """The forward of a module whose parameters are gathered around it."""
        if self.settings is None or not self.is_whole and all(part is not module for part in self.parts):
            return module.forward
        return torch.compile(module.forward, **self.settings)

    def apply(self, groups, wraps):
        """(the module that is prepared, the forward that the engine calls). `groups` are the modules whose parameters are gathered, which of_group()
        compiles; wraps: the module goes into another one, so that its call is the forward."""
        model = self.model
        if self.settings is None:
            return model, model if wraps else model.forward
        if self.is_whole and groups and self.settings.get("fullgraph"):
            raise ValueError(f"fullgraph=True: parameters of the {type(model).__name__} are gathered for {len(groups)} of its modules, between graphs; "
                             "expected fullgraph=False, or use_regional_compilation=True")
        if self.is_whole:
            if self.in_place and not wraps:
                return model, torch.compile(model.forward, **self.settings)
            compiled = torch.compile(model, **self.settings)
            return model if self.in_place else compiled, compiled if wraps else compiled.forward
        if self.in_place or groups:
            for part in self.parts:
                if all(part is not group for group in groups):
                    compile_in_place(part, **self.settings)
            return model, model if wraps else model.forward
        compiled = compile_regions(model, **self.settings)
        return compiled, compiled if wraps else compiled.forward
