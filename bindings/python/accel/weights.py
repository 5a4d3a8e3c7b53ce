"""Weights of models in files: one file, or several with an index."""

from . import capi, dtypes
from .checkpoint import of_torch
from .module import Module
from .torch_types import is_torch_model, is_torch_tensor, torch_module
from .values import to_engine


def load_state_dict(checkpoint_file, device_map=None):
    """The weights in a file of safetensors or torch.save(), in several with an index, or in a folder with one of these: torch's tensors
    where torch is imported."""
    if device_map is not None:
        raise NotImplementedError(f"device_map={device_map!r}: models that are larger than a device are not in libaccel yet")
    state = capi.accel_load_state_dict(str(checkpoint_file))
    return state if torch_module() is None else of_torch(state)


def load_checkpoint_in_model(model, checkpoint, device_map=None, offload_folder=None, dtype=None, strict=False, **settings):
    """Loads weights into a model of torch or of accel. `checkpoint` is a file, an index of several, or a folder with one of these. `dtype`
    is that of the loaded numbers. With `strict` the names must be those of the model."""
    asked = {name: value for name, value in {"device_map": device_map, "offload_folder": offload_folder, **settings}.items() if value}
    if asked:
        raise NotImplementedError(f"{', '.join(asked)}: models that are larger than a device are not in libaccel yet")
    state = load_state_dict(checkpoint)
    if dtype is not None:
        state = {name: value.to(dtype=dtype) if value.is_floating_point() else value for name, value in state.items()}
    if is_torch_model(model) or isinstance(model, Module):
        model.load_state_dict(state, strict=strict)
    else:
        raise TypeError(f"a {type(model).__name__} is no model; expected one of torch or accel")


def in_floating_type(value, name):
    """A floating tensor of torch or of accel in the type of this name; anything else as it is."""
    if not hasattr(value, "is_floating_point") or not value.is_floating_point():
        return value
    return value.to(dtype=getattr(torch_module() if is_torch_tensor(value) else dtypes, name))


def tree_of(state):
    """The engine's module whose weights are these, by their dotted names."""
    modules = {"": capi.accel_module_create("Module")}

    def module_of(path):
        if path not in modules:
            parent, _, name = path.rpartition(".")
            modules[path] = capi.accel_module_create("Module")
            capi.accel_module_add_child(module_of(parent), name, modules[path])
        return modules[path]

    for path, value in state.items():
        parent, _, name = path.rpartition(".")
        capi.accel_module_add_buffer(module_of(parent), name, to_engine(value), 1)
    return modules[""]
