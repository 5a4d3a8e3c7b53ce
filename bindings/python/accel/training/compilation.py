"""torch.compile of a whole model, or of each of the blocks that it repeats."""

import copy
import dataclasses
from types import MethodType

from ..compat import missing
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


def without_compilation(backend, plugin):
    """The plugin of an Accelerator that asks for no compilation. Raises for settings that ask for one."""
    if plugin is not None and not isinstance(plugin, TorchDynamoPlugin):
        raise TypeError(f"dynamo_plugin is a {type(plugin).__name__}; expected a TorchDynamoPlugin")
    if backend is not None and plugin is not None:
        raise ValueError("give dynamo_backend or dynamo_plugin, not both")
    if backend is not None:
        plugin = TorchDynamoPlugin(backend=backend)
    if plugin is not None and plugin.backend != DynamoBackend.NO:
        raise NotImplementedError(missing.text("dynamo_plugin" if backend is None else "dynamo_backend"))
    return plugin


def _is_module(value):
    torch = torch_module()
    return torch is not None and isinstance(value, torch.nn.Module)


def is_compiled_module(module):
    """Whether torch.compile made it."""
    return _is_module(module) and hasattr(torch_module(), "_dynamo") and isinstance(module, torch_module()._dynamo.OptimizedModule)


def has_compiled_regions(module):
    """Whether torch.compile made a module inside of it."""
    return _is_module(module) and any(is_compiled_module(part) for part in module.modules() if part is not module)


def wrapped_by_compilation(module):
    """The model that torch.compile or compile_regions() was given; None for a model that is not compiled."""
    if is_compiled_module(module):
        return module._orig_mod
    return vars(module).get("_orig_mod") if has_compiled_regions(module) else None


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


def compile_regions_deepspeed(module, **settings):
    """As compile_regions(), in the model itself: each part gets a compiled forward and stays the same object."""
    if not has_repeated_blocks(module):
        module.compile(**settings)
        return
    for child in module.children():
        if is_repeated_blocks(module):
            child.compile(**settings)
        else:
            compile_regions_deepspeed(child, **settings)


def compile_regions_fsdp2(module, **settings):
    """As compile_regions_deepspeed(). The model."""
    compile_regions_deepspeed(module, **settings)
    return module
