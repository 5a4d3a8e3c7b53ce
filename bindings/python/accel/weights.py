"""Weights of models in files: one file, or several with an index."""

import json
import pathlib

from .checkpoint import load
from .module import Module
from .tensors import Tensor
from .torch_types import is_torch_model, torch_module
from .utils.constants import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME


def load_state_dict(checkpoint_file, device_map=None):
    """The tensors of a safetensors file, or of one of torch.save(), as the state dict of a model: torch's where torch is imported."""
    if device_map is not None:
        raise NotImplementedError(f"device_map={device_map!r}: models that are larger than a device are not in libaccel yet")
    state = load(checkpoint_file)
    if torch_module() is None:
        return state
    from .pytorch.bridge import to_torch

    return {name: to_torch(value) if isinstance(value, Tensor) else value for name, value in state.items()}


def load_checkpoint_in_model(model, checkpoint, device_map=None, offload_folder=None, dtype=None, strict=False, **settings):
    """Loads weights into a model of torch or of accel. `checkpoint` is a file, an index of several, or a folder with one of these. `dtype`
    is that of the loaded numbers. With `strict` the names must be those of the model."""
    asked = {name: value for name, value in {"device_map": device_map, "offload_folder": offload_folder, **settings}.items() if value}
    if asked:
        raise NotImplementedError(f"{', '.join(asked)}: models that are larger than a device are not in libaccel yet")
    state = {}
    for file in _files_of(pathlib.Path(checkpoint)):
        state.update(load_state_dict(file))
    if dtype is not None:
        state = {name: value.to(dtype=dtype) if value.is_floating_point() else value for name, value in state.items()}
    if is_torch_model(model) or isinstance(model, Module):
        model.load_state_dict(state, strict=strict)
    else:
        raise TypeError(f"a {type(model).__name__} is no model; expected one of torch or accel")


def _files_of(place):
    """The files that a checkpoint consists of."""
    if place.is_dir():
        names = (SAFE_WEIGHTS_NAME, WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME)
        found = [place / name for name in names if (place / name).is_file()]
        if not found:
            raise ValueError(f"{place} has no weights; expected one of {', '.join(names)}")
        place = found[0]
    if place.suffix != ".json":
        return [place]
    return [place.parent / name for name in sorted(set(json.loads(place.read_text())["weight_map"].values()))]
