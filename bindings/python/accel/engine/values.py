# SPDX-License-Identifier: Apache-2.0
"""Trees of values on their way to the engine and back: foreign tensors become tensors, and containers come back as what they were."""

import copy
import dataclasses
from collections.abc import Mapping

from .. import capi
from ..tensors.creation import as_tensor
from ..tensors.tensor_type import is_tensor
from .torch_types import is_torch_tensor

_PLAIN = (str, bool, int, float, bytes, type(None))
_HANDLES = (capi.accel_tensor, capi.accel_device_t)


def to_engine(value, otherwise=None):
    """The tree with what the engine knows in it. `otherwise` says what stands for other objects, and for containers of other classes than
    list, tuple and dict, which else go as these."""
    kind = type(value)
    if is_tensor(value) or isinstance(value, _PLAIN) and (otherwise is None or fits(value)):
        return value
    if kind is dict and has_plain_keys(value) or otherwise is None and isinstance(value, Mapping):
        return dict(zip(keys_of(value), [to_engine(item, otherwise) for item in value.values()]))
    if kind is list or otherwise is None and isinstance(value, list):
        return [to_engine(item, otherwise) for item in value]
    if kind is tuple or otherwise is None and isinstance(value, tuple):
        return tuple([to_engine(item, otherwise) for item in value])
    if is_torch_tensor(value):
        return _bridge().from_torch(value)
    if hasattr(value, "__dlpack__"):
        return as_tensor(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()  # a number of NumPy
    return value if otherwise is None or isinstance(value, _HANDLES) else otherwise(value)


def engine_values(value, owner):
    """The tree for the engine; a TypeError names the `owner` of a leaf that is no tensor, number or text."""
    def check(leaf):
        if not (leaf is None or isinstance(leaf, (str, bool, int, float)) or is_tensor(leaf)):
            raise TypeError(f"{owner} a {type(leaf).__name__} to pass on; expected tensors, numbers and texts in lists, tuples and dicts")
        return leaf

    return map_leaves(to_engine(value), lambda _: True, check)


def _bridge():
    from . import bridge  # imports torch

    return bridge


def of_kind(template, value):
    """A result of the engine as the kind of what was given: a tensor of torch for one of torch."""
    return _bridge().to_torch(value) if is_tensor(value) and is_torch_tensor(template) else value


def fits(value):
    """Whether the engine can hold a number or a text: 64 bits, UTF-8 without NUL."""
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    if not isinstance(value, str):
        return True
    try:
        return "\0" not in value and value.encode() is not None
    except UnicodeEncodeError:
        return False


def has_plain_keys(mapping):
    """Whether the engine has the kinds of all keys: texts and integers."""
    return all((type(key) is str or type(key) is int) and fits(key) for key in mapping)


def keys_of(mapping):
    """The keys as the engine takes them; when it cannot, the places of all."""
    return list(mapping) if has_plain_keys(mapping) else range(len(mapping))


def like(template, value):
    """A tree of the engine with the container classes, and the kind of tensors, of the one that it was made from."""
    if isinstance(template, (list, tuple)) and isinstance(value, (list, tuple)) and len(template) == len(value):
        return again(template, [like(part, item) for part, item in zip(template, value)])
    if isinstance(template, Mapping) and isinstance(value, dict):
        return again(template, {key: like(part, value[place]) for place, (key, part) in zip(keys_of(template), template.items())
                                if place in value})
    return of_kind(template, value)


def map_leaves(value, is_leaf, function):
    """A tree of the same lists, tuples and dicts, with a function applied to some of its leaves."""
    if isinstance(value, (list, tuple)):
        return again(value, [map_leaves(item, is_leaf, function) for item in value])
    if isinstance(value, Mapping):
        return again(value, {key: map_leaves(item, is_leaf, function) for key, item in value.items()})
    return function(value) if is_leaf(value) else value


def contents_of(value):
    """The items of a container of any class: a list, or a dict; None for another object."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)}
    return None


def again(template, contents):
    """A container as another one is, with other contents."""
    kind = type(template)
    if kind is list or kind is dict:
        return contents
    if isinstance(template, tuple):
        return kind(*contents) if hasattr(template, "_fields") else kind(contents)
    made = copy.copy(template)
    if isinstance(template, list):
        made[:] = contents
    elif isinstance(template, Mapping) and hasattr(made, "__setitem__") and list(made) == list(contents):
        for key, item in contents.items():  # outputs of transformers take nothing else
            made[key] = item
    elif hasattr(made, "clear") and hasattr(made, "update"):  # the factory of a defaultdict stays
        made.clear()
        made.update(contents)
    elif isinstance(template, Mapping):
        made = kind(contents)
    else:
        for name, item in contents.items():
            object.__setattr__(made, name, item)
    return made
