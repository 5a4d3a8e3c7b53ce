# SPDX-License-Identifier: Apache-2.0
"""The types that count as a tensor, for modules that the class Tensor itself is made from."""

from .. import capi

Handle = capi.accel_tensor


def is_tensor(value):
    return isinstance(value, Handle)
