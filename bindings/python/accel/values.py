"""Trees of values on their way to the engine and back: foreign tensors become tensors, tuples stay tuples."""

from collections.abc import Mapping

from . import capi
from .creation import as_tensor
from .tensors import Tensor

_PLAIN = (str, bool, int, float, type(None))
_HANDLES = (capi.accel_tensor, capi.accel_device_t)


def to_engine(value, otherwise=lambda value: value):
    """The tree with what the engine knows in it; the same object when nothing changes. `otherwise` says what stands for other objects."""
    if type(value) is Tensor or isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_engine(item, otherwise) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_engine(item, otherwise) for item in value]
    if hasattr(value, "__dlpack__"):
        return as_tensor(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()  # a number of NumPy
    return value if isinstance(value, _HANDLES) else otherwise(value)


def like(template, value):
    """A tree of the engine with the container types of the one that it was made from."""
    if isinstance(template, (list, tuple)) and isinstance(value, list) and len(template) == len(value):
        items = [like(part, item) for part, item in zip(template, value)]
        if isinstance(template, tuple):
            return type(template)(*items) if hasattr(template, "_fields") else type(template)(items)
        return items
    if isinstance(template, Mapping) and isinstance(value, dict):
        items = {key: like(part, value[str(key)]) for key, part in template.items() if str(key) in value}
        return items if type(template) is dict else type(template)(items)
    return value


def map_leaves(value, is_leaf, function):
    """The same tree of lists, tuples and dicts, with a function applied to some of its leaves."""
    if isinstance(value, (list, tuple)):
        items = [map_leaves(item, is_leaf, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        items = {key: map_leaves(item, is_leaf, function) for key, item in value.items()}
        return items if type(value) is dict else type(value)(items)
    return function(value) if is_leaf(value) else value
