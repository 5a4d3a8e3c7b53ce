# SPDX-License-Identifier: Apache-2.0
"""Quantized models: the settings of the engine from keywords, names and dtypes of the library or of torch."""

from collections.abc import Mapping

from .. import capi
from ..state.options import fill
from ..tensors import dtypes

_DTYPES = ("compute_dtype", "dtype")
_NAMES = ("skip_modules", "keep_in_fp32_modules")


def quantization_options(given):
    """None, the name of a kind, or a mapping of fields of accel_quantization_options_t."""
    if given is None:
        return None
    if not isinstance(given, (str, Mapping)):
        raise TypeError(f"quantization is a {type(given).__name__}; expected the name of a kind such as 'nf4', or a mapping such as {{'kind': 'nf4', 'group': 64}}")
    fields = {"kind": given} if isinstance(given, str) else dict(given)
    for name in _DTYPES:
        if fields.get(name) is not None:
            fields[name] = dtypes.dtype(fields[name]).number
    for name in _NAMES:
        if isinstance(fields.get(name), (set, frozenset, tuple)):
            fields[name] = list(fields[name])
    return fill(capi.accel_quantization_options_t(), fields)
