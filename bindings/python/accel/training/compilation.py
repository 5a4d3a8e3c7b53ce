# SPDX-License-Identifier: Apache-2.0
"""torch.compile of a whole model, or of each of the blocks that it repeats."""

import copy
import dataclasses
import sys
from types import MethodType

from ..engine.torch_types import torch_module
from ..generated import settings
from ..generated.enums import DynamoBackend
from ..state.options import read_variables


@dataclasses.dataclass
class TorchDynamoPlugin(settings.TorchDynamoPlugin):
    """The arguments of torch.compile. None: from ACCELERATE_DYNAMO_*, else torch's default."""

    def __post_init__(self):
        self.backend = self.backend or None
        read_variables(self, "backend")
        name = str(self.backend).upper()
        if name not in DynamoBackend:
            raise ValueError(f"backend={self.backend!r}: expected one of {', '.join(DynamoBackend.list())}")
        self.backend = DynamoBackend(name)
        self.mode = self.mode or None
        read_variables(self, "mode", "fullgraph", "dynamic", "use_regional_compilation")
        self.fullgraph = bool(self.fullgraph)

    def to_dict(self):
        return {**copy.deepcopy(vars(self)), "backend": self.backend.value.lower()}

    def to_kwargs(self):
        """The arguments of torch.compile that differ from its defaults."""
        return {name: value for name, value in super().to_kwargs().items() if name != "use_regional_compilation"}


def chosen_plugin(backend, plugin):
    """How an Accelerator with these arguments compiles models of torch; without any ACCELERATE_DYNAMO_* say so."""
    if plugin is not None and not isinstance(plugin, TorchDynamoPlugin):
        raise TypeError(f"dynamo_plugin is a {type(plugin).__name__}; expected a TorchDynamoPlugin")
    if backend is not None and plugin is not None:
        raise ValueError("give dynamo_backend or dynamo_plugin, not both")
    return TorchDynamoPlugin(backend=backend) if plugin is None else plugin


def refuse_compilation(plugin, why):
    """Refuses a backend that compiles, where nothing can be compiled."""
    if plugin.backend not in (DynamoBackend.NO, DynamoBackend.EAGER):
        raise NotImplementedError(f"dynamo_backend={plugin.backend.value.lower()!r}: {why} or the backends \"no\" and \"eager\"")


def refuse_for_own_modules(plugin, model):
    """A model of the package has no Python to compile."""
    refuse_compilation(plugin, f"torch.compile compiles models of torch, and the {type(model).__name__} is one of accel, which has fused kernels, and "
                               "accelerator.capture() for whole steps; expected a model of torch,")


def _is_module(value):
    torch = torch_module()
    return torch is not None and isinstance(value, torch.nn.Module)


def _without_ranks(module):
    """The model inside of a prepared one of several ranks; another module itself."""
    return module.module if getattr(type(module), "is_around_model", False) else module


def is_compiled_module(module):
    """Whether torch.compile made it, or what is in a model that several ranks train."""
    kind = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)  # without importing the compiler
    return kind is not None and isinstance(_without_ranks(module), kind)


def has_compiled_regions(module):
    """Whether torch.compile made a module inside of it."""
    if not _is_module(module) or "torch._dynamo" not in sys.modules:
        return False
    module = _without_ranks(module)
    return any(is_compiled_module(part) for part in module.modules() if part is not module)


def wrapped_by_compilation(module):
    """The model that torch.compile or compile_regions() was given; None for a model that is not compiled."""
    module = _without_ranks(module)
    if is_compiled_module(module):
        return module._orig_mod
    return vars(module).get("_orig_mod") if has_compiled_regions(module) else None


def without_compilation(name):
    """The name of a tensor or module in the model that was compiled."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def is_repeated_blocks(module):
    """Whether it is a torch.nn.ModuleList of modules of one class."""
    if not _is_module(module) or not isinstance(module, torch_module().nn.ModuleList) or len(module) == 0:
        return False
    return all(isinstance(block, type(module[0])) for block in module)


def has_repeated_blocks(module):
    """Whether there are repeated blocks in it, wherever."""
    return _is_module(module) and any(map(is_repeated_blocks, module.modules()))


def compile_regions(module, **settings):
    """A model of the same parameters in which each repeated block is compiled, and around them each part without such blocks. Blocks of
    one class are compiled once, so that it takes less time than compiling the model as a whole. `settings` are those of torch.compile."""
    compiled = _compile_parts(module, settings)
    vars(compiled).setdefault("_orig_mod", module)
    return compiled


def _compile_parts(module, settings):
    torch = torch_module()
    if is_repeated_blocks(module):
        return torch.nn.ModuleList(torch.compile(block, **settings) for block in module)
    if not has_repeated_blocks(module):
        return torch.compile(module, **settings)
    twin = copy.copy(module)  # with the same tensors
    vars(twin)["_modules"] = {name: _compile_parts(child, settings) for name, child in module.named_children()}
    for name, value in list(vars(twin).items()):
        if isinstance(value, MethodType) and value.__self__ is module:
            vars(twin)[name] = MethodType(value.__func__, twin)
    return twin


def regions(module):
    """The modules that regional compilation compiles: the repeated blocks, and each part around them that has none."""
    if is_repeated_blocks(module):
        yield from module
    elif has_repeated_blocks(module):
        for child in module.children():
            yield from regions(child)
    else:
        yield module


def compile_in_place(module, **settings):
    """module.compile(), also of torch's own classes, of which that compiles nothing: the compiler passes over their code where it begins with it."""
    if type(module).__module__.startswith("torch.nn."):
        module._compiled_call_impl = torch_module().compile(lambda *args, **kwargs: module._call_impl(*args, **kwargs), **settings)
    else:
        module.compile(**settings)


def compile_regions_deepspeed(module, **settings):
    """compile_regions() in the model itself: each part gets a compiled forward and stays the same object."""
    for part in regions(module):
        compile_in_place(part, **settings)


def compile_regions_fsdp2(module, **settings):
    """compile_regions_deepspeed() under its other name. The model."""
    compile_regions_deepspeed(module, **settings)
    return module
