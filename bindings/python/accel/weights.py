"""Weights of models in files: one file, or several with an index."""

from . import capi
from .checkpoint import of_torch
from .module import Module
from .torch_types import is_torch_model, torch_module


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

