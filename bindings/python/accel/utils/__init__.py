# SPDX-License-Identifier: Apache-2.0
"""The names of accelerate.utils. Each is loaded with the module that has it when it is asked for."""

from ..compat import names
from ..compat.names import resolver

__getattr__ = resolver(__name__)
__all__ = sorted(name for name in names.HOMES if name not in names.TORCH_NAMES)


def __dir__():
    return sorted({*globals(), *__all__})
