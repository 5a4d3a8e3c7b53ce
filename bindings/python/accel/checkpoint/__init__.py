# SPDX-License-Identifier: Apache-2.0
"""States in files."""

from ..compat.names import resolver

__getattr__ = resolver(__name__, "files")
