"""Files of tensors (safetensors), and the objects of a program that belong to its training state."""

import logging
import os
import re
import shutil

from . import capi
from .handlers import fill
from .objects import packed, unpacked
from .state import PartialState, current
from .torch_types import is_torch_tensor, torch_module
from .values import map_leaves, to_engine


def check_serialization(safe_serialization):
    if not safe_serialization:
        raise NotImplementedError("safe_serialization=False: tensors are written as safetensors; pickles are not written")


def note_serialization(safe_serialization):
    """For programs of torch, which Accelerate lets choose: a training state is read by load_state(), whatever its form."""
    if not safe_serialization:
        logging.getLogger(__name__).warning("safe_serialization=False: the tensors of a training state are written as safetensors all the same")


def save(obj, f, save_on_each_node=False, safe_serialization=None, metadata=None):
    """Writes a dict of tensors to a safetensors file, complete or not at all, on the main process (or on that of each host). What has
    torch's tensors is written by torch.save() instead, unless safe_serialization=True."""
    if safe_serialization is None:
        safe_serialization = not _has_torch_tensors(obj)
    if not safe_serialization and torch_module() is not None:
        if _is_writer(save_on_each_node):
            torch_module().save(obj, f)
        return None
    check_serialization(safe_serialization)
    if _has_torch_tensors(obj):
        obj, metadata = clean_state_dict_for_safetensors(obj), metadata or {"format": "pt"}  # without which transformers refuses the file
    try:
        state = current()
    except RuntimeError:  # no state: one process
        return capi.accel_save(to_engine(obj), metadata, str(f), None)
    options = fill(capi.accel_save_options_t(), {"save_on_each_node": save_on_each_node})
    return capi.accel_save_on_main_process(state, to_engine(obj), metadata, str(f), options)


def _has_torch_tensors(value):
    found = []
    map_leaves(value, is_torch_tensor, found.append)
    return bool(found)


def _is_writer(save_on_each_node):
    if not PartialState.is_made():
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
    """The tensors of a safetensors file. Other files are read by torch.load() with weights_only=True, unless `kwargs` say otherwise; its
    tensors are torch's."""
    if not _is_safetensors(f):
        return _torch_for(f).load(f, map_location=map_location, **{"weights_only": True, **kwargs})
    tensors = capi.accel_load(str(f))
    return tensors if map_location in (None, "cpu") else {name: tensor.to(map_location) for name, tensor in tensors.items()}


def _is_safetensors(f):
    """Files of torch begin with the signature of a zip archive or of a pickle."""
    if not isinstance(f, (str, os.PathLike)):
        return False
    with open(f, "rb") as file:
        return file.read(2) not in (b"PK", b"\x80\x02")


def _torch_for(f):
    torch = torch_module()
    if torch is None:
        raise ImportError(f"{f} is a file of torch.save(): `import torch` before it is loaded")
    return torch


def load_metadata(f):
    """The texts that save() was given as metadata, and for tensors that are one and the same the other name and the first."""
    return capi.accel_load_metadata(str(f))


def register(state, objects, first):
    """Adds objects with state_dict() and load_state_dict() to the training state, as custom_checkpoint_{number}."""
    wrong = [f"Item at index {place} is a {type(thing).__name__}" for place, thing in enumerate(objects)
             if not callable(getattr(thing, "state_dict", None)) or not callable(getattr(thing, "load_state_dict", None))]
    if wrong:
        raise ValueError(f"{'; '.join(wrong)}: expected objects with state_dict() and load_state_dict()")
    for number, thing in enumerate(objects, first):
        capi.accel_register_for_checkpointing(state, f"custom_checkpoint_{number}",
                                              (lambda thing=thing: packed(thing.state_dict()),
                                               lambda state, thing=thing: thing.load_state_dict(unpacked(state, trusted=False))))


def next_folder(project):
    """Where the next checkpoint of automatic naming goes."""
    base = project.checkpoint_dir()
    folder = os.path.join(base, f"checkpoint_{project.iteration}")
    if capi.accel_is_main_process(current()):
        os.makedirs(base, exist_ok=True)
        if os.path.exists(folder):
            raise ValueError(f"{folder} is there already; set ProjectConfiguration(iteration=...) above {project.iteration}")
    return folder


def remove_oldest(project):
    """Those beyond total_limit go on the main process, when the newest one is complete."""
    if project.total_limit is not None and capi.accel_is_main_process(current()):
        folders = list_folders(project.checkpoint_dir())
        for old in folders[:max(0, len(folders) - max(project.total_limit, 1))]:
            shutil.rmtree(old)


def next_iteration(project):
    """The number behind that of the newest checkpoint of automatic naming."""
    base = project.checkpoint_dir()
    folders = list_folders(base) if os.path.isdir(base) else []
    return int(folders[-1].rsplit("_", 1)[1]) + 1 if folders else project.iteration


def list_folders(base):
    """The checkpoints of a folder, the oldest first."""
    numbered = [(int(found.group(1)), entry.path) for entry in os.scandir(base)
                if (found := re.fullmatch(r"checkpoint_(\d+)", entry.name))]
    return [path for _, path in sorted(numbered)]
