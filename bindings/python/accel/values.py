"""Trees of values on their way to the engine and back: foreign tensors become tensors, tuples stay tuples."""

from collections.abc import Mapping

from .creation import as_tensor
from .tensors import Tensor

_PLAIN = (str, bool, int, float, type(None))


def to_engine(value):
    """The tree with what the engine knows in it; the same object when nothing changes."""
    if type(value) is Tensor or isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_engine(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_engine(item) for item in value]
    if hasattr(value, "__dlpack__"):
        return as_tensor(value)
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value  # a number of NumPy


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
