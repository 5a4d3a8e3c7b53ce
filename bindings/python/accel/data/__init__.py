# SPDX-License-Identifier: Apache-2.0
"""Datasets, samplers and loaders, of the engine and of torch."""

from ..compat.names import resolver

__getattr__ = resolver(__name__, "loader")
