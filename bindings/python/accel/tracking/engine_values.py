# SPDX-License-Identifier: Apache-2.0
"""Logged values in the form that the engine takes. A value that only another tracker understands is left out, with one warning for each name."""

import logging
import numbers
from collections.abc import Mapping

from ..engine import values
from ..tensors import ops
from .logging import MultiProcessAdapter

_logger = MultiProcessAdapter(logging.getLogger("accel.tracking"), {})


def loggable(given):
    """Numbers, texts, tensors and maps of them."""
    kept = {}
    for name, value in given.items():
        if type(value) is not float:
            value = _value(value)
        if value is None:
            _logger.warning_once(f"{name} is left out: a {type(given[name]).__name__} is neither number nor text nor tensor")
        else:
            kept[name if type(name) is str and values.fits(name) else _text(str(name))] = value
    return kept


def _value(value):
    kind = type(value)
    if kind is float or kind is bool:
        return value
    if isinstance(value, str):
        return value if values.fits(value) else _text(value)
    if isinstance(value, Mapping):
        return loggable(value)
    if isinstance(value, numbers.Real):
        return _number(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item") and not hasattr(value, "requires_grad"):
        return _value(value.item())  # a number of NumPy
    return _tensor(value) if hasattr(value, "__dlpack__") else None


def _number(value):
    if isinstance(value, numbers.Integral) and values.fits(int(value)):
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _tensor(value):
    try:
        return values.to_engine(value.detach() if hasattr(value, "detach") else value)
    except (BufferError, RuntimeError, TypeError, ValueError):  # of texts, of objects
        return None


def _text(text):
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def configuration(value):
    """A configuration: what the engine has no kind for is a text."""
    return None if value is None else values.to_engine(value, _configured)


def _configured(value):
    contents = values.contents_of(value)
    if isinstance(contents, dict):
        return {_text(str(key)): configuration(item) for key, item in contents.items()}
    return [configuration(item) for item in contents] if contents is not None else _text(str(value))


def images(given, channels_first):
    """Arrays or tensors of images; lists of images become one. Images of PIL have their channels last, and get them where they are asked."""
    return {name: _images(name, value, channels_first) for name, value in given.items()}


def _images(name, value, channels_first):
    if not isinstance(value, (list, tuple)):
        return _image(name, value, channels_first)
    parts = [_image(name, part, channels_first) for part in value]
    if len({tuple(part.shape) for part in parts}) != 1:
        raise ValueError(f"the images {name!r} have the shapes {', '.join(str(tuple(part.shape)) for part in parts)}; expected one")
    return ops.stack(parts)


def _image(name, value, channels_first):
    if hasattr(value, "getbands"):  # of PIL
        import numpy

        value = numpy.array(value)
        value = numpy.ascontiguousarray(numpy.moveaxis(value, -1, 0)) if channels_first and value.ndim == 3 else value
    made = _tensor(value) if hasattr(value, "__dlpack__") else None
    if made is None:
        raise TypeError(f"the image {name!r} is a {type(value).__name__}; expected an array, a tensor or an image of PIL")
    return made
