# SPDX-License-Identifier: Apache-2.0
"""The steps of the search for a device map, for programs that make maps of their own. They work on queues of pairs of path and module, and on the
sizes of compute_module_sizes(); the search itself is the engine's (device_maps.py)."""

from ..generated.methods import get_module_leaves  # noqa: F401  (a step, too)
from ..tensors.sizes import convert_file_size_to_int


def _children_of(path, module):
    return [(f"{path}.{name}", child) for name, child in module.named_children()] if hasattr(module, "named_children") else []


def _parts_of(path, module):
    """The parts of a module: its own parameters, then its children."""
    own = [(f"{path}.{name}", parameter) for name, parameter in module.named_parameters(recurse=False)]
    return own + _children_of(path, module)


def get_max_layer_size(modules, module_sizes, no_split_module_classes):
    """The size of the largest part that is not split, and the paths of all of this size."""
    largest, paths = 0, []
    waiting = list(reversed(modules))
    while waiting:
        path, module = waiting.pop()
        children = _children_of(path, module)
        if children and type(module).__name__ not in no_split_module_classes:
            waiting.extend(reversed(children))
        elif module_sizes[path] > largest:
            largest, paths = module_sizes[path], [path]
        elif module_sizes[path] == largest:
            paths.append(path)
    return largest, paths


def get_module_size_with_ties(tied_params, module_size, module_sizes, modules_to_treat):
    """The size of a module together with those of the queue that have parameters which are tied to its own, their paths, and they."""
    found = []
    for tied in tied_params:
        place = next(((path, module) for path, module in modules_to_treat if tied.startswith(f"{path}.")), None)
        if place is not None:
            module_size += module_sizes[place[0]] - module_sizes[tied]
            found.append(place)
    return module_size, [path for path, _ in found], [module for _, module in found]


def fallback_allocate(modules, module_sizes, size_limit, no_split_module_classes=None, tied_parameters=None):
    """The first part of a queue, in depth, that fits into a size with what is tied to it: its path, it, and the queue without it, in
    which the modules around it are split. None twice and the queue, where nothing fits."""
    try:
        limit = convert_file_size_to_int(size_limit)
    except ValueError:
        return None, None, modules
    found = _first_that_fits(list(modules), module_sizes, limit, no_split_module_classes or (), tied_parameters or ())
    if found is None:
        return None, None, modules
    queue = list(modules)
    for end in [place for place, letter in enumerate(found) if letter == "."]:
        place = next((place for place, (path, _) in enumerate(queue) if path == found[:end]), None)
        if place is not None:
            queue[place:place + 1] = _parts_of(*queue[place])
    place = next(place for place, (path, _) in enumerate(queue) if path == found)
    path, module = queue.pop(place)
    return path, module, queue


def _first_that_fits(waiting, module_sizes, limit, no_split_module_classes, tied_parameters):
    while waiting:
        path, module = waiting.pop(0)
        tied = [name for group in tied_parameters if any(_is_in(path, name) for name in group) for name in group if not _is_in(path, name)]
        if get_module_size_with_ties(tied, module_sizes[path], module_sizes, waiting)[0] <= limit:
            return path
        if _children_of(path, module) and type(module).__name__ not in no_split_module_classes:
            waiting[:0] = _parts_of(path, module)
    return None


def _is_in(path, name):
    return f"{name}.".startswith(f"{path}.")
