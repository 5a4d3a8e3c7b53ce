# SPDX-License-Identifier: Apache-2.0
"""Files of values and of weights, and what belongs to the training state of a program."""

import logging
import os
import random as python_random
import sys

from .. import capi
from ..engine.objects import packed_state, unpacked_state
from ..engine.torch_types import is_torch_model, is_torch_tensor, torch_module
from ..engine.values import map_leaves, to_engine
from ..generated.methods import load_metadata  # noqa: F401  (beside load())
from ..state.job import current, is_made
from ..state.options import fill
from ..state.process import PartialState

_NO_LIMIT = 2**63 - 1


def save(obj, f, save_on_each_node=False, safe_serialization=None, metadata=None):
    """Writes any value as torch.save() does, complete or not at all, on the main process (or on that of each host); what only pickles can
    hold, and what `f` is not a path for, is left to torch.save() itself. With safe_serialization, and by default for a dict of the engine's
    tensors, it is a safetensors file."""
    if safe_serialization is None:
        safe_serialization = isinstance(obj, dict) and bool(obj) and all(isinstance(value, capi.accel_tensor) for value in obj.values())
    if not safe_serialization and (not isinstance(f, (str, os.PathLike)) or not _is_plain(obj)):
        if _is_writer(save_on_each_node):
            _torch_for(f).save(obj, f)
        return
    if safe_serialization and _has_torch_tensors(obj):
        obj, metadata = clean_state_dict_for_safetensors(obj), metadata or {"format": "pt"}  # without which transformers refuses the file
    options = fill(capi.accel_save_options_t(), {"safe_serialization": safe_serialization, "save_on_each_node": save_on_each_node})
    value = to_engine(obj)
    try:
        state = current()
    except RuntimeError:  # no state: one process
        capi.accel_save(value, metadata, str(f), options)
    else:
        capi.accel_save_on_main_process(state, value, metadata, str(f), options)


def _has_torch_tensors(value):
    found = []
    map_leaves(value, is_torch_tensor, found.append)
    return bool(found)


def _is_plain(value):
    """Whether a file of the engine holds it as it is."""
    if isinstance(value, dict):
        return all(type(key) in (str, int) for key in value) and all(map(_is_plain, value.values()))
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str, bytes) or isinstance(value, capi.accel_tensor) or is_torch_tensor(value)


def _is_writer(save_on_each_node):
    if not is_made():
        return True
    return PartialState().is_local_main_process if save_on_each_node else PartialState().is_main_process


def clean_state_dict_for_safetensors(state_dict):
    """Without the later names of tensors that share memory, and with all of them contiguous."""
    first: dict = {}
    cleaned = {}
    for name, tensor in state_dict.items():
        if not hasattr(tensor, "data_ptr"):
            cleaned[name] = tensor
        elif tensor.numel() == 0 or first.setdefault((tensor.data_ptr(), tuple(tensor.shape)), name) == name:
            cleaned[name] = tensor.contiguous()
    dropped = state_dict.keys() - cleaned.keys()
    if dropped:
        logging.getLogger(__name__).warning("Removed shared tensors, whose memory others have: %s", ", ".join(sorted(dropped)))
    return cleaned


def load(f, map_location=None, **kwargs):
    """The content of a file of safetensors or of torch.save(); nothing of it is executed. Tensors of the latter are torch's where torch is
    imported. They are on the CPU, or on the device `map_location`. With `kwargs`, as weights_only=False, with a map or a function as
    `map_location`, and where `f` is not a path, torch.load() reads it."""
    if kwargs or not isinstance(f, (str, os.PathLike)) or isinstance(map_location, dict) or callable(map_location):
        return _torch_for(f).load(f, map_location=map_location, **{"weights_only": True, **kwargs})
    options = fill(capi.accel_load_options_t(), {"map_location": None if map_location is None else str(map_location)})
    value = capi.accel_load(str(f), options)
    return value if torch_module() is None or _is_safetensors(f) else of_torch(value)


def of_torch(value):
    """The tree with tensors of torch, which share their memory with the engine's."""
    from ..engine import device_copy  # imports torch

    return device_copy.of_torch(value)


def _is_safetensors(f):
    """The first byte of a file of torch is that of a zip archive or a pickle; safetensors have a JSON object behind 8 bytes."""
    with open(f, "rb") as file:
        return file.read(9)[8:] == b"{"


def _torch_for(f):
    torch = torch_module()
    if torch is None:
        raise ImportError(f"{f} needs torch.save() or torch.load(): `import torch` before")
    return torch


def register(state, objects, load_kwargs):
    """Adds objects with state_dict() and load_state_dict() to the training state, as custom_checkpoint_<number>.pkl. `load_kwargs` says
    how they are read, when they are."""
    wrong = [f"Item at index {place} is a {type(thing).__name__}" for place, thing in enumerate(objects)
             if not callable(getattr(thing, "state_dict", None)) or not callable(getattr(thing, "load_state_dict", None))]
    if wrong:
        raise ValueError(f"{'; '.join(wrong)}: expected objects with state_dict() and load_state_dict()")
    for thing in objects:
        def read(state, thing=thing):
            thing.load_state_dict(unpacked_state(state, trusted=load_kwargs.get("weights_only") is False))

        capi.accel_register_for_checkpointing(state, None, (lambda thing=thing: packed_state(thing.state_dict()), read))


def _custom_path(path, index):
    return os.path.join(path, f"{capi.ACCEL_CUSTOM_STATES_NAME}_{index}.pkl")


def save_custom_state(obj, path, index=0, save_on_each_node=False):
    """Writes the state of one object, as save_state() does with those that are registered."""
    options = fill(capi.accel_save_options_t(), {"safe_serialization": False, "save_on_each_node": save_on_each_node})
    capi.accel_save_on_main_process(current(), packed_state(obj.state_dict()), None, _custom_path(path, index), options)


def load_custom_state(obj, path, index=0):
    """Gives an object its state back."""
    obj.load_state_dict(unpacked_state(capi.accel_load(_custom_path(path, index), None), trusted=False))


def register_generators(state):
    """Python's generator of random numbers, and NumPy's once it is imported, are part of the training state. Called before each save and
    load."""
    known = state.__dict__.setdefault("generators_of_python", set())
    if "random_state" not in known:
        capi.accel_register_random_state(state, "random_state", (python_random.getstate, _set_python_state))
        known.add("random_state")
    if "numpy" in sys.modules and "numpy_random_seed" not in known:
        capi.accel_register_random_state(state, "numpy_random_seed", (_numpy_state, _set_numpy_state))
        known.add("numpy_random_seed")


def _set_python_state(state):
    version, numbers, gauss = state
    python_random.setstate((version, tuple(numbers), gauss))


def _numpy_state():
    name, numbers, *rest = sys.modules["numpy"].random.get_state()
    return (name, numbers.tolist(), *rest)


def _set_numpy_state(state):
    name, numbers, *rest = state
    sys.modules["numpy"].random.set_state((name, sys.modules["numpy"].asarray(numbers, dtype="uint32"), *rest))


def add_hook(register_in_engine, state, run, hook, models):
    """A hook of the engine: `run(hook, models, items, folder)` changes the list of items, in which None stands for a model that is left to
    the hook. The result has remove(). The engine keeps no Accelerator alive, which keeps the engine's state."""
    def run_hook(items, folder):
        items = list(items)
        run(hook, models, items, folder)
        return items

    return RemovableHandle(state, register_in_engine(state, run_hook))


class RemovableHandle:
    """A hook of checkpoints, which remove() takes away."""

    def __init__(self, state, number):
        self._state, self._number = state, number

    def remove(self):
        if self._number is not None:
            capi.accel_remove_checkpoint_hook(self._state, self._number)
        self._number = None


def run_save_hook(hook, models, weights, folder):
    """Calls hook(models, weights, folder) as Accelerate does: what the hook takes out of `weights` is not written, what it puts there is.
    `weights` has an item for each of `models`, None for one that another hook took out."""
    places = [place for place, given in enumerate(weights) if given is not None]
    given = [of_torch(weights[place]) if is_torch_model(models[place]) else weights[place] for place in places]
    left = list(given)
    hook([models[place] for place in places], left, folder)
    same_length = len(left) == len(given)
    for number, place in enumerate(places):
        if same_length:
            weights[place] = weights[place] if left[number] is given[number] else to_engine(left[number])
        elif not any(one is given[number] for one in left):
            weights[place] = None


def run_load_hook(hook, models, numbers, folder):
    """Calls hook(models, folder): a model that the hook takes out of the list is not loaded."""
    places = [place for place, number in enumerate(numbers) if number is not None]
    left = [models[place] for place in places]
    hook(left, folder)
    for place in places:
        if not any(one is models[place] for one in left):
            numbers[place] = None


def set_project(state, project):
    """Tells the engine where checkpoints go."""
    limit = _NO_LIMIT if project.total_limit is None else max(project.total_limit, 1)
    paths = {name: None if path is None else str(path) for name, path in (("project_dir", project.project_dir), ("logging_dir", project.logging_dir))}
    capi.accel_set_project(state, fill(capi.accel_project_options_t(), {
        **paths, "automatic_checkpoint_naming": bool(project.automatic_checkpoint_naming), "total_limit": limit,
        "iteration": project.iteration, "save_on_each_node": bool(project.save_on_each_node)}))


def iteration(state):
    """The number of the next checkpoint."""
    return capi.accel_project(state)["iteration"]


def check_map_location(map_location):
    """Tensors are loaded to where the prepared objects are: there is nothing to choose, and wrong values are errors."""
    if map_location not in (None, "cpu", "on_device"):
        raise TypeError(f"Unsupported optimizer map location passed, map_location={map_location!r}: expected None, 'cpu' or 'on_device'")
