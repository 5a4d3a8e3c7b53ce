# SPDX-License-Identifier: Apache-2.0
"""Hooks that bring the weights of torch modules to the device where they compute, and put them away afterwards.

Outside of its forward a module has tensors on the device meta, which have no memory. A weight that is on the right device already,
as what is mapped from a file on the CPU, is not copied: the parameter made of it is cached and put into the module's dict, and that is all.
"""

import contextlib
import logging
from collections.abc import Mapping

import torch

from ..engine.bridge import not_traced
from ..modules.model_hooks import ModelHook, SequentialHook, add_hook_to_module
from ..tensors.trees import find_device, send_to_device
from .torch_module_tensors import (get_non_persistent_buffers, named_module_tensors, owner_of, parameter_like, place_of,
                                   set_module_tensor_to_device)
from .weight_names import PrefixedDataset

_logger = logging.getLogger(__name__)
_META = torch.device("meta")


class _Slot:
    """A tensor that is put away between forwards: the dict of its module, and its names there and in the weights."""

    def __init__(self, module, path):
        owner, self.name = owner_of(module, path)
        self.path, self.place = path, place_of(owner, self.name)
        former = self.place[self.name]
        self.original_device, self.shape = former.device, former.shape
        self.is_parameter = isinstance(former, torch.nn.Parameter)
        self.empty = former if former.device == _META else self._like(former, former.to(_META))
        self.value = self.made = None  # what a kept tensor is made of, and it

    def __getstate__(self):
        """A copy makes a tensor of its own weights when it needs it: what this one keeps would be in memory there, file or not."""
        return {**vars(self), "value": None, "made": None}

    def _like(self, former, data):
        return parameter_like(former, data) if self.is_parameter else data

    def streamed(self, value):
        """The module's tensor with a value that is on the device for this forward."""
        return self._like(self.empty, value.to(self.place[self.name].dtype))

    def of(self, value, device):
        """The module's tensor with a value of the weights, on a device."""
        dtype = self.place[self.name].dtype  # another hook may have changed it for this forward
        if value is self.value and self.made.device == device and self.made.dtype == dtype:
            return self.made
        if value.shape != self.shape:
            raise ValueError(f"{self.path} has the shape {list(self.shape)} in the model and {list(value.shape)} in the weights; expected the same")
        data = value.detach().to(device=device, dtype=dtype)
        made = self._like(self.empty, data)
        if data.data_ptr() == value.data_ptr() and data.device == value.device:
            self.value, self.made = value, made
        return made


class AlignDevicesHook(ModelHook):
    """Puts the weights of a module and the inputs of its forward on `execution_device`. With `offload` the weights are there only during the
    forward, and come from `weights_map`, which is made of them on the CPU if it is not given; buffers too with `offload_buffers`, and what is
    in inner modules with `place_submodules`. With `io_same_device` the output goes to the device of the input. Values of the `skip_keys` in
    keyword arguments and in outputs stay where they are. `tied_params_map` has, by the addresses of tied tensors, what is on which device."""

    def __init__(self, execution_device=None, offload=False, io_same_device=False, weights_map=None, offload_buffers=False,
                 place_submodules=False, skip_keys=None, tied_params_map=None):
        self.execution_device = execution_device
        self.offload = offload
        self.io_same_device = io_same_device
        self.weights_map = weights_map
        self.offload_buffers = offload_buffers
        self.place_submodules = place_submodules
        self.skip_keys = skip_keys
        self.tied_params_map = tied_params_map
        self.input_device = None
        self.original_devices: dict = {}
        self.tied_params_names: set = set()
        self._ties: dict = {}  # by these names, what is on which device; an address can be that of another tensor later
        self._slots: list = []
        self._streamed: list = []  # those whose weights come from the stream,
        self._unstreamed: list = []  # and the others
        self._borrowed: list = []
        self._ahead, self._place = None, 0  # what reads the files of the modules that run next
        self._stream, self._uses = None, 0  # what copies them to an accelerator, and how many forwards use its memory
        self._whole = None  # a stream whose pass ends with the forward of this module

    def __repr__(self):
        shown = ("execution_device", "offload", "io_same_device", "offload_buffers", "place_submodules", "skip_keys")
        return f"AlignDevicesHook({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def init_hook(self, module):
        if self.execution_device is not None and torch.device(self.execution_device) == _META:
            self.tied_params_map = None  # tensors without memory have no addresses
        if self.offload:
            self._put_away(module)
        elif self.execution_device is not None:
            for name, _ in list(named_module_tensors(module, recurse=self.place_submodules)):
                self._move(module, name)
        return module

    def _move(self, module, name):
        set_module_tensor_to_device(module, name, self.execution_device, tied_params_map=self.tied_params_map, clear_cache=False)

    def _put_away(self, module):
        parameters = dict(module.named_parameters(recurse=self.place_submodules, remove_duplicate=False))
        buffers = dict(module.named_buffers(recurse=self.place_submodules, remove_duplicate=False))
        tensors = {**parameters, **buffers}
        self.original_devices = {name: tensor.device for name, tensor in tensors.items()}
        never_saved = get_non_persistent_buffers(module, self.place_submodules, fqns=True)
        away = [*parameters, *(name for name in buffers if self.offload_buffers and name not in never_saved)]
        if self.weights_map is None:
            self.weights_map = {name: tensors[name].detach().to("cpu") for name in away}
        self._slots = [_Slot(module, name) for name in away]
        self._ties = {name: self.tied_params_map[tensors[name].data_ptr()] for name in away if self.tied_params_map
                      and tensors[name].device != _META and tensors[name].data_ptr() in self.tied_params_map}
        self.tied_params_names = set(self._ties)
        for slot in self._slots:
            slot.place[slot.name] = slot.empty
        for name in set(buffers).difference(away) if self.execution_device is not None else ():
            self._move(module, name)

    @not_traced
    def pre_forward(self, module, *args, **kwargs):
        device = None if self.execution_device is None else torch.device(self.execution_device)
        if self.io_same_device:
            self.input_device = find_device([args, kwargs])
        if self.offload:
            self._load(device)
        if device is None or _is_there(args, kwargs, device):
            return args, kwargs
        return send_to_device(args, self.execution_device), send_to_device(kwargs, self.execution_device, skip_keys=self.skip_keys)

    def read_with(self, ahead, place):
        """Tells a ReadAhead when the module, which has this place there, runs."""
        self._ahead, self._place = ahead, place

    def stream_with(self, stream, place):
        """Takes the streamed_tensors() from a WeightStream, where the module has this place; of several devices the weights come as without."""
        self._stream, self._place = stream, place

    def end_passes_of(self, stream):
        """The forward of this module is a pass over the whole of a WeightStream."""
        self._whole = stream

    def offloaded_tensors(self):
        return [self.weights_map[slot.path] for slot in self._slots]

    def ties(self):
        """A number for each weight that has other names in the model, too: the same for all of its names."""
        return list(map(id, self._ties.values()))

    def keep_from_stream(self, ties):
        """Weights of these ties come as without a stream."""
        kept = {path for path, tie in self._ties.items() if id(tie) in ties}
        self._streamed = [slot for slot in self._slots if slot.path not in kept]
        self._unstreamed = [slot for slot in self._slots if slot.path in kept]

    def streamed_tensors(self):
        return [self.weights_map[slot.path] for slot in self._streamed]

    def _load(self, device):
        slots = self._slots
        if self._stream is not None and device == self._stream.device:
            values = self._stream.begin_use(self._place)
            self._uses += 1
            for slot, value in zip(self._streamed, values):
                slot.place[slot.name] = slot.streamed(value)
            slots = self._unstreamed
        elif self._ahead is not None:
            self._ahead.reach(self._place)
        weights = self.weights_map
        for slot in slots:
            value = weights[slot.path]
            made = self._tied(slot, value, device) if slot.path in self._ties else slot.of(value, value.device if device is None else device)
            slot.place[slot.name] = made
            if value.dtype == torch.int8 and "weight" in slot.path:
                scale = slot.path.replace("weight", "SCB")
                if scale in weights:
                    made.SCB = weights[scale].to(made.device)

    def _tied(self, slot, value, device):
        """The tensor of a slot; for a tied one, what is on the device already under another name."""
        there = self._ties[slot.path]
        if self.execution_device not in there:
            there[self.execution_device] = slot.of(value, value.device if device is None else device)
            self._borrowed.append((there, self.execution_device))
        return there[self.execution_device]

    @not_traced
    def post_forward(self, module, output):
        if self.offload:
            self.forward_failed(module)
        if self._whole is not None:
            self._whole.end_pass()
        if self.io_same_device and self.input_device is not None:
            output = send_to_device(output, self.input_device, skip_keys=self.skip_keys)
        return output

    def forward_failed(self, module):
        for slot in self._slots:
            slot.place[slot.name] = slot.empty
        for there, device in self._borrowed:
            there.pop(device, None)
        self._borrowed.clear()
        if self._uses > 0:
            self._uses -= 1
            self._stream.end_use(self._place)

    def detach_hook(self, module):
        for slot in self._slots:
            if slot.original_device != _META:
                slot.place[slot.name] = slot.of(self.weights_map[slot.path], slot.original_device)
        for name, device in self.original_devices.items() if self.offload else ():
            if device != _META:  # buffers that stayed, on the execution device
                owner, own = owner_of(module, name)
                if place_of(owner, own)[own].device != device:
                    set_module_tensor_to_device(module, name, device, clear_cache=False)
        return module


def _is_there(args, kwargs, device):
    """Whether all arguments are tensors on the device, or nothing that could be moved."""
    for value in args:
        if not (value.device == device if type(value) is torch.Tensor else value is None):
            return False
    for value in kwargs.values():
        if not (value.device == device if type(value) is torch.Tensor else value is None or type(value) in (bool, int, float, str)):
            return False
    return True


def attach_execution_device_hook(module, execution_device, skip_keys=None, preload_module_classes=None, tied_params_map=None):
    """Adds hooks that move weights and inputs to a device to the modules in a tree that have weights and no hook; not to those inside of a
    module of the `preload_module_classes`."""
    if not hasattr(module, "_hf_hook") and module.state_dict():
        add_hook_to_module(module, AlignDevicesHook(execution_device, skip_keys=skip_keys, tied_params_map=tied_params_map))
    if type(module).__name__ not in (preload_module_classes or ()):
        for child in module.children():
            attach_execution_device_hook(child, execution_device, skip_keys, preload_module_classes, tied_params_map)


def attach_align_device_hook(module, execution_device=None, offload=False, weights_map=None, offload_buffers=False, module_name="", skip_keys=None,
                             preload_module_classes=None, tied_params_map=None):
    """Adds a hook to each module in a tree that has tensors of its own; one to the whole of a module of the `preload_module_classes` with
    `offload`, which are those whose inner modules are not called. `module_name` is the path of the module in `weights_map`."""
    is_whole = offload and type(module).__name__ in (preload_module_classes or ())
    if is_whole or any(True for _ in named_module_tensors(module)):
        weights = None if weights_map is None else PrefixedDataset(weights_map, f"{module_name}." if module_name else "")
        hook = AlignDevicesHook(execution_device, offload, weights_map=weights, offload_buffers=offload_buffers, place_submodules=is_whole,
                                skip_keys=skip_keys, tied_params_map=tied_params_map)
        add_hook_to_module(module, hook, append=True)
    for name, child in () if is_whole else module.named_children():
        attach_align_device_hook(child, execution_device, offload, weights_map, offload_buffers, f"{module_name}.{name}" if module_name else name,
                                 skip_keys, preload_module_classes, tied_params_map)


def attach_align_device_hook_on_blocks(module, execution_device=None, offload=False, weights_map=None, offload_buffers=False, module_name="",
                                       skip_keys=None, preload_module_classes=None, tied_params_map=None):
    """Adds hooks to the modules that have entries in the dicts `execution_device` and `offload`, of paths; one value is that of all. The root
    gives its output back on the device of its input."""
    settings = {"offload_buffers": offload_buffers, "skip_keys": skip_keys, "tied_params_map": tied_params_map}
    if not isinstance(execution_device, Mapping) and not isinstance(offload, Mapping):
        if not offload:
            add_hook_to_module(module, AlignDevicesHook(execution_device, io_same_device=True, place_submodules=True, **settings), append=True)
        else:
            attach_align_device_hook(module, execution_device, True, weights_map, module_name=module_name,
                                     preload_module_classes=preload_module_classes, **settings)
        return
    if not isinstance(execution_device, Mapping):
        execution_device = dict.fromkeys(offload, execution_device)
    if not isinstance(offload, Mapping):
        offload = dict.fromkeys(execution_device, offload)
    is_root = module_name == ""
    if module_name in execution_device and module_name in offload:
        device = execution_device[module_name]
        if offload[module_name]:
            attach_align_device_hook(module, device, True, weights_map, module_name=module_name, preload_module_classes=preload_module_classes,
                                     **settings)
            if not hasattr(module, "_hf_hook"):
                add_hook_to_module(module, AlignDevicesHook(device, io_same_device=is_root, skip_keys=skip_keys, tied_params_map=tied_params_map))
            attach_execution_device_hook(module, device, skip_keys, preload_module_classes, tied_params_map)
        else:
            add_hook_to_module(module, AlignDevicesHook(device, io_same_device=is_root, place_submodules=True, **settings))
            attach_execution_device_hook(module, device, skip_keys, tied_params_map=tied_params_map)
    elif is_root:
        hook = AlignDevicesHook(execution_device.get(""), io_same_device=True, skip_keys=skip_keys, tied_params_map=tied_params_map)
        add_hook_to_module(module, hook)
    for name, child in module.named_children():
        attach_align_device_hook_on_blocks(child, execution_device, offload, weights_map, offload_buffers,
                                           name if is_root else f"{module_name}.{name}", skip_keys, preload_module_classes, tied_params_map)


def _aligning_hooks(module):
    hook = getattr(module, "_hf_hook", None)
    hooks = hook.hooks if isinstance(hook, SequentialHook) else (hook,)
    return [one for one in hooks if isinstance(one, AlignDevicesHook)]


def aligning_hook(module):
    """The first of the hooks of this kind that a module has."""
    return _aligning_hooks(module)[0]


def offloading_hook(module):
    """The hook that puts the weights of a module away; None if none does."""
    return next((one for one in _aligning_hooks(module) if one.offload), None)


def has_offloaded_params(module):
    """Whether a hook puts the weights of a module away between its forwards."""
    return offloading_hook(module) is not None


@contextlib.contextmanager
def align_module_device(module, execution_device=None):
    hook = offloading_hook(module)
    if hook is not None:
        usual = hook.execution_device
        hook.execution_device = usual if execution_device is None else execution_device
        try:
            hook.pre_forward(module)
            yield
        finally:
            hook.forward_failed(module)
            hook.execution_device = usual
        return
    moved = {} if execution_device is None else {name: one.device for name, one in module.named_parameters(recurse=False)}
    try:
        for name in moved:
            set_module_tensor_to_device(module, name, execution_device, clear_cache=False)
        yield
    finally:
        for name, device in moved.items():
            set_module_tensor_to_device(module, name, device, clear_cache=False)


def get_state_dict_offloaded_model(model):
    """The state dict of a model on the CPU, with the weights that its hooks put away."""
    with contextlib.ExitStack() as aligned:
        for module in model.modules():
            if has_offloaded_params(module):
                aligned.enter_context(align_module_device(module, "cpu"))
        state = {name: value.to("cpu") if isinstance(value, torch.Tensor) and value.device != _META else value
                 for name, value in model.state_dict().items()}
    left = {name for name, value in state.items() if isinstance(value, torch.Tensor) and value.device == _META}
    if left:
        _logger.warning("These tensors are left out, because they are on the device meta, without memory: %s", ", ".join(sorted(left)))
    return {name: value for name, value in state.items() if name not in left}


def get_state_dict_from_offload(module, module_name, state_dict, device_to_put_offload="cpu"):
    """Fills the entries of a module's tensors in a state dict; weights that are put away come to a device. `module_name` is the path of one of
    its tensors."""
    root = module_name.rpartition(".")[0]
    with align_module_device(module, device_to_put_offload if has_offloaded_params(module) else None):
        for name, value in module.state_dict().items():
            if f"{root}.{name}" in state_dict:
                state_dict[f"{root}.{name}"] = value
    return state_dict
