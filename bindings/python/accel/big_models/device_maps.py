# SPDX-License-Identifier: Apache-2.0
"""Device maps: which device each part of a model is stored on. The engine measures and places; models of torch are shown to it as they are."""

import collections
import logging
import warnings

from .. import capi
from ..engine.torch_types import is_torch_model
from ..modules.argument_types import engine_module
from ..state.job import joined
from ..state.options import fill
from .module_queues import fallback_allocate, get_max_layer_size, get_module_leaves, get_module_size_with_ties

__all__ = ["fallback_allocate", "get_max_layer_size", "get_module_leaves", "get_module_size_with_ties"]
_logger = logging.getLogger(__name__)


def handle_of(function, model):
    """The engine's module of a model of torch or of accel that a function was given."""
    if not is_torch_model(model):
        return engine_module(function, model)
    from ..training.mirrored_module import mirror  # imports torch

    return mirror(model)


def name_of(place):
    """A place as the engine has it: the number of an accelerator, or a text."""
    return place if isinstance(place, int) else str(place)


def to_engine(places):
    """A device map or a max_memory, whose places may be devices of torch and of accel; a text or None is as it is."""
    if places is None or isinstance(places, str):
        return places
    return {name_of(key): name_of(value) if not isinstance(value, float) else value for key, value in places.items()}


def _dtype_name(kind):
    return kind.value if hasattr(kind, "value") and isinstance(kind.value, str) else str(kind).replace("torch.", "")


def _options(dtype=None, special_dtypes=None, no_split_module_classes=None, **settings):
    classes = no_split_module_classes
    return fill(capi.accel_device_map_options_t(), {
        "dtype": None if dtype is None else _dtype_name(dtype),
        "special_dtypes": {name: _dtype_name(kind) for name, kind in special_dtypes.items()} if special_dtypes else None,
        "no_split_module_classes": classes if classes is None or isinstance(classes, str) else ",".join(classes) or None,
        **settings})


def compute_module_sizes(model, dtype=None, special_dtypes=None, buffers_only=False):
    """The bytes of each module, parameter and buffer, by its path; "" is the whole. Floating numbers count as of `dtype` where that is smaller, and
    tensors of `special_dtypes` as of theirs. Tied parameters count once."""
    sizes = capi.accel_compute_module_sizes(handle_of("compute_module_sizes", model), _options(dtype, special_dtypes), int(buffers_only))
    return collections.defaultdict(int, sizes)


def compute_module_total_buffer_size(model, dtype=None, special_dtypes=None):
    """The bytes of all buffers."""
    return compute_module_sizes(model, dtype, special_dtypes, buffers_only=True)[""]


def calculate_maximum_sizes(model):
    """The bytes of a model, and a pair of the bytes of its largest layer and the paths of those of that size."""
    handle, options = handle_of("calculate_maximum_sizes", model), _options(no_split_module_classes=getattr(model, "_no_split_modules", None))
    largest = capi.accel_get_max_layer_size(handle, options)
    return capi.accel_compute_module_sizes(handle, options, 0).get("", 0), (largest["size"], largest["names"])


def get_max_memory(max_memory=None):
    """The bytes of each device in the order in which they are filled, of texts such as "8GiB"; without max_memory what is free."""
    return capi.accel_get_max_memory(to_engine(max_memory))


def get_balanced_memory(model, max_memory=None, no_split_module_classes=None, dtype=None, special_dtypes=None, low_zero=False):
    """A max_memory with which accelerators get equal parts of a model; with `low_zero` the first one gets what the others have no room for."""
    options = _options(dtype, special_dtypes, no_split_module_classes, low_zero=low_zero)
    return capi.accel_get_balanced_memory(handle_of("get_balanced_memory", model), to_engine(max_memory), options)


def infer_auto_device_map(model, max_memory=None, no_split_module_classes=None, dtype=None, special_dtypes=None, verbose=False, clean_result=True,
                          offload_buffers=False, fallback_allocation=False):
    """A device map that fills accelerators first, then the CPU, and then the disk, within `max_memory`, or what is free. Modules of the
    `no_split_module_classes` are on one device, tied parameters too. Sizes are those of compute_module_sizes(). With
    `fallback_allocation` a device on which the next module does not fit gets a smaller one. `verbose` prints each decision."""
    options = _options(dtype, special_dtypes, no_split_module_classes, clean_result=clean_result, offload_buffers=offload_buffers,
                       fallback_allocation=fallback_allocation)
    device_map, explanation = capi.accel_infer_auto_device_map(handle_of("infer_auto_device_map", model), to_engine(max_memory), options)
    if verbose:
        print(explanation["text"])
    if explanation["buffers_may_not_fit"]:
        warnings.warn(f"{explanation['offloaded_buffers']} bytes of buffers of offloaded modules stay on an accelerator, and none has as much left; "
                      "offload_buffers=True offloads them too", stacklevel=2)
    if explanation["minimum_memory"]:
        needed = ", ".join(f"{place} needs {count} bytes" for place, count in explanation["minimum_memory"].items())
        _logger.info("Devices with insufficient memory for a first module, which stay empty: %s", needed)
    return device_map


def resolve(model, device_map, max_memory, no_split_module_classes, dtype, offload_buffers):
    """The device map that a program means, which may give a strategy."""
    if not isinstance(device_map, str):
        return device_map
    options = _options(dtype, None, no_split_module_classes, offload_buffers=offload_buffers)
    return capi.accel_resolve_device_map(handle_of("resolve", model), device_map, to_engine(max_memory), options)


def check_device_map(model, device_map):
    """Warns of paths that name no module of the model; a tensor without a device is a ValueError."""
    strange = capi.accel_check_device_map(handle_of("check_device_map", model), to_engine(device_map))
    if strange:
        warnings.warn(f"these device_map keys do not match any submodules of {type(model).__name__}: {', '.join(strange)}", UserWarning, stacklevel=2)


def clean_device_map(device_map, module_name=""):
    """Joins entries below one path that have the same device, in the map itself; below `module_name` only. The map."""
    prefix = f"{module_name}." if module_name else ""
    inside = {path.removeprefix(prefix): place for path, place in device_map.items() if path.startswith(prefix)}
    cleaned = capi.accel_clean_device_map(to_engine(inside))
    as_given = {name_of(place): place for place in inside.values()}
    for path in inside:
        del device_map[f"{prefix}{path}"]
    device_map.update({f"{prefix}{path}" if path else module_name: as_given[place] for path, place in cleaned.items()})
    return device_map


def state_for(is_needed):
    """The engine's state, which is made if it is needed and not there; None if it is not needed."""
    return joined() if is_needed else None
