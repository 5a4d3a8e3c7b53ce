# SPDX-License-Identifier: Apache-2.0
"""Small functions on dicts, names and sizes that scripts take from accelerate.utils."""

from ..state.process import PartialState


def wait_for_everyone():
    """A barrier."""
    PartialState().wait_for_everyone()


def merge_dicts(source, destination):
    """Puts a nested dict into another one."""
    for key, value in source.items():
        if isinstance(value, dict):
            merge_dicts(value, destination.setdefault(key, {}))
        else:
            destination[key] = value
    return destination


def convert_bytes(size):
    """A number of bytes as a text in the largest unit of which there is at least one."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    return f"{round(size, 2)} PB"


def get_pretty_name(obj):
    """The name of a class or function, or of the class of an object."""
    return getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or type(obj).__name__


def recursive_getattr(obj, attr):
    """`obj.a.b` for "a.b"."""
    for name in attr.split("."):
        obj = getattr(obj, name)
    return obj


def do_nothing(*_, **__):
    """For places that take a function."""
