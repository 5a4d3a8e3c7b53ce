# SPDX-License-Identifier: Apache-2.0
"""Weights outside of memory: in files of their own with an index, or where they are already, in files of safetensors.

Tensors that are read share the memory of their mapped file: nothing is copied until it is needed. They are torch's where the program has
imported torch, which this module does not, else the engine's.
"""

import copy
import ctypes
import json
import os
from collections.abc import Mapping
from math import prod

from .. import capi
from ..engine.torch_types import torch_module
from ..tensors import creation, dtypes
from .module_tensors import find_shared_buffers, find_tied_parameters, retie_parameters, set_module_tensor_to_device
from .weight_names import PrefixedDataset, with_first  # noqa: F401  (Accelerate has PrefixedDataset here)

_INDEX = "index.json"


def _dtype(name):
    """An element type by its name, of torch or of the engine."""
    torch = torch_module()
    return dtypes.dtype(name) if torch is None else getattr(torch, name.removeprefix("torch.")) if isinstance(name, str) else name


def _write(tensor, file):
    """The bytes of a tensor."""
    whole = tensor.detach().to("cpu").contiguous()
    if whole.nbytes:
        file.write((ctypes.c_char * whole.nbytes).from_address(whole.data_ptr()))


def offload_weight(weight, weight_name, offload_folder, index=None):
    """Writes a tensor as `NAME.dat`, and its dtype and shape into the index if one is given; the index. A tensor that is mapped from a former
    file of this name keeps its values."""
    path = os.path.join(offload_folder, f"{weight_name}.dat")
    with open(f"{path}.part", "wb") as file:
        _write(weight, file)
    os.replace(f"{path}.part", path)
    if index is not None:
        index[weight_name] = {"dtype": dtype_name(weight), "shape": list(weight.shape)}
    return index


def dtype_name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def load_offloaded_weight(weight_file, weight_info):
    """The tensor in a file that offload_weight() wrote."""
    torch, dtype, shape = torch_module(), _dtype(weight_info["dtype"]), tuple(weight_info["shape"])
    count = prod(shape)
    if os.path.getsize(weight_file) < count * dtype.itemsize:
        raise ValueError(f"{weight_file} has {os.path.getsize(weight_file)} bytes; expected {count * dtype.itemsize} for {dtype} of shape {list(shape)}")
    if count == 0:
        return creation.empty(*shape, dtype=dtype) if torch is None else torch.empty(shape, dtype=dtype)
    if torch is None:
        return capi.accel_tensor_map_file(os.fspath(weight_file), dtype.number)[:count].reshape(shape)
    mapped = torch.from_file(os.fspath(weight_file), shared=False, size=count * dtype.itemsize, dtype=torch.uint8)
    return mapped.view(dtype).reshape(shape)


def save_offload_index(index, offload_folder):
    """Writes an index into the folder; entries of one that is there stay."""
    if not index:
        return
    path = os.path.join(offload_folder, _INDEX)
    former = _read_index(offload_folder) if os.path.isfile(path) else {}
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump({**former, **index}, file, indent=2)
    os.replace(f"{path}.part", path)


def _read_index(folder):
    with open(os.path.join(folder, _INDEX), encoding="utf-8") as file:
        return json.load(file)


def offload_state_dict(save_dir, state_dict):
    """Writes the tensors of a state dict into a folder, each as a file, with an index."""
    os.makedirs(save_dir, exist_ok=True)
    index: dict = {}
    for name, tensor in state_dict.items():
        offload_weight(tensor, name, save_dir, index)
    save_offload_index(index, save_dir)


def load_offloaded_weights(model, index, offload_folder):
    """Puts the tensors of an index, which are files in the folder, into a model on the CPU. A tensor with several names in the model stays
    one."""
    weights, shared = OffloadedWeightsLoader(save_folder=offload_folder, index=index or {}), find_tied_parameters(model) + find_shared_buffers(model)
    for name in weights:
        if "SCB" not in name:
            scale = name.replace("weight", "SCB")
            set_module_tensor_to_device(model, name, "cpu", value=weights[name],
                                        fp16_statistics=weights[scale] if scale != name and scale in weights else None)
    retie_parameters(model, with_first(weights, shared))


def extract_submodules_state_dict(state_dict, submodule_names):
    """The entries of some modules, or of the names themselves."""
    return {key: value for module in submodule_names for key, value in state_dict.items() if key == module or key.startswith(f"{module}.")}


class OffloadedWeightsLoader(Mapping):
    """Tensors by name: those of a state dict, and those that an index says the places of: files in a folder, or in files of safetensors
    ("safetensors_file", with "weight_name" and "dtype" where these differ). Files are mapped when the first tensor of theirs is asked for, and
    a tensor is the same object each time. With `device` what is in safetensors files comes there. `mapped` has tensors of files that are mapped
    already. A copy maps the files again: nothing of them is in memory, and what a program writes into its tensors is its own. Tensors of files
    that have other content by then, or are gone, are copied."""

    def __init__(self, state_dict=None, save_folder=None, index=None, device=None, mapped=None):
        if state_dict is None and save_folder is None and index is None:
            raise ValueError("OffloadedWeightsLoader() has no weights: expected a state_dict, a save_folder, or an index")
        self.state_dict = {} if state_dict is None else state_dict
        self.save_folder = save_folder
        self.index = (_read_index(save_folder) if save_folder is not None else {}) if index is None else index
        self.device = device
        self._files: dict = {}
        self._mapped: dict = dict(mapped or {})
        self._contents = {key: _content(self._path(key)) for key in self._mapped if key in self.index}  # of their files, when they were mapped
        self.all_keys = list(dict.fromkeys([*self.state_dict, *self.index, *self._mapped]))

    def __getitem__(self, key):
        if key in self.state_dict:
            return self.state_dict[key]
        entry = self.index.get(key, {})
        if key not in self._mapped:
            self._map(key)
        mapped = self._mapped[key]
        if "safetensors_file" not in entry:
            return mapped
        return mapped.to(device=self.device, dtype=_dtype(entry["dtype"]) if "dtype" in entry else None)

    def __deepcopy__(self, memo):
        made = memo[id(self)] = type(self)(copy.deepcopy(self.state_dict, memo), self.save_folder, copy.deepcopy(self.index), self.device)
        contents = {path: _content(path) for path in {self._path(key) for key in self._contents}}
        for key, tensor in self._mapped.items():
            if key in self._contents and self._contents[key] is not None and self._contents[key] == contents[self._path(key)]:
                made._map(key)
            else:
                made._mapped[key] = copy.deepcopy(tensor, memo)
            memo[id(tensor)] = made._mapped[key]
        made.all_keys = list(self.all_keys)
        return made

    def _path(self, key):
        """The file of a tensor of the index."""
        return self.index[key].get("safetensors_file") or os.path.join(self.save_folder, f"{key}.dat")

    def _map(self, key):
        path, entry = self._path(key), self.index[key]
        self._contents[key] = _content(path)
        if entry.get("safetensors_file") is None:
            self._mapped[key] = load_offloaded_weight(path, entry)
            return
        if path not in self._files:
            self._files[path] = mapped_file(path)
        self._mapped[key] = self._files[path][entry.get("weight_name", key)]

    def __contains__(self, key):
        return key in self.state_dict or key in self.index or key in self._mapped

    def __iter__(self):
        return iter(self.all_keys)

    def __len__(self):
        return len(self.all_keys)


def _content(path):
    """The identity of a file, which differs when it was replaced or written; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def mapped_file(path):
    """The tensors in a file, whoever wrote it, or in an index or a folder of weights; they share the memory of the mapped files."""
    is_one = os.path.isfile(path) and not os.fspath(path).endswith(".json")
    mapped = capi.accel_load(os.fspath(path), None) if is_one else capi.accel_load_state_dict(os.fspath(path), None)
    if not isinstance(mapped, dict) or not all(isinstance(one, capi.accel_tensor) for one in mapped.values()):
        raise TypeError(f"{path} holds something else than a map of tensors; expected weights")
    if torch_module() is None:
        return mapped
    from ..engine.device_copy import of_torch  # imports torch

    return of_torch(mapped)
