# SPDX-License-Identifier: Apache-2.0
"""Stages of models of the engine that are chains by themselves, as GPT-2 and Llama are: runs of their parts, which the engine computes."""

from ... import capi
from ...big_models.device_maps import compute_module_sizes
from ...modules.module import Module
from .pipeline_cut import balanced


class PartChain:
    """A model whose parts the engine knows. A part is named by the first of its modules: "transformer.h.3"."""

    chunk_rows = 0

    @classmethod
    def of(cls, model):
        handle = capi.accel_pipeline_create([model.handle])
        names = [name for name in capi.accel_module_named_modules(handle) if name and "." not in name]
        if len(names) == 1:
            raise NotImplementedError(f"a {type(model).__name__} of accel is not known as a chain of parts; expected an nn.Sequential, GPT-2 or Llama")
        return cls(model, [capi.accel_module_child(handle, name) for name in names])

    def __init__(self, model, parts):
        self.model, self.parts = model, parts
        self.names = [_first_module(part) for part in parts]

    def choose(self, count, args, kwargs):
        sizes = [compute_module_sizes(Module.of_handle(part))[""] for part in self.parts]
        sizes[0] = 0  # rows of it are looked up
        return [self.names[place] for place in balanced(sizes, count)[1:]]

    def stage(self, split_points, index, device):
        unknown = [name for name in split_points if name not in self.names]
        bounds = [0, *map(self.names.index, split_points), len(self.names)] if not unknown else []
        if unknown or bounds != sorted(set(bounds)):
            raise ValueError(f"split_points={list(split_points)}: expected names of parts behind the first one, in their order: {self.names[1:]}")
        return PartStage(self.parts[bounds[index]:bounds[index + 1]], index == 0, index == len(split_points), device)


class PartStage:
    """Parts that follow each other."""

    def __init__(self, parts, is_first, is_last, device):
        self.is_first, self.is_last = is_first, is_last
        for part in parts:
            Module.of_handle(part).to(device)
        self.handle = capi.accel_pipeline_create(parts)

    def __call__(self, value):
        if not self.is_first:
            inputs = [value["passed"]]
        elif len(value["args"]) + len(value["named"]) == 1:
            inputs = [*value["args"], *value["named"].values()]
        else:
            given = [f"{len(value['args'])} inputs by their places", *value["named"]]
            raise ValueError(f"a model of accel in stages is called with {', '.join(given)}; expected model(ids), with token ids alone")
        output = capi.accel_module_call(self.handle, inputs)
        return output if self.is_last else {"passed": output}

    def run(self, ids_or_hidden, cache):
        """The output for tokens behind those of the cache, and the cache with them: [key, value] of each layer of the stage."""
        if self.is_first:
            inputs = [ids_or_hidden, cache]
        else:
            earlier = cache[0][0].shape[2] if cache else 0
            inputs = [[ids_or_hidden, earlier, ids_or_hidden.shape[1], cache, []]]
        output = capi.accel_module_call(self.handle, inputs)
        cache = output[1] if self.is_last else output[4]
        if self.is_first and not cache:
            raise NotImplementedError("the first stage has no layer whose keys tell how many tokens there were; expected split_points behind one")
        return output[0], cache


def _first_module(part):
    """The path of the first module of a part, below lists that the model has modules for."""
    paths = list(capi.accel_module_named_modules(part))[1:]
    return next(path for path in paths if capi.accel_module_kind(capi.accel_module_child(part, path)) != "ModuleList")
