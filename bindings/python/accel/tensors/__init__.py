# SPDX-License-Identifier: Apache-2.0
"""Tensors of the engine: the class, operators, element types, devices, trees."""

from . import tensor  # noqa: F401  (whatever of this folder is used, the engine's tensors are of the class)
