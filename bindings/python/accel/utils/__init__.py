"""The names of accelerate.utils. Each is loaded with the module that has it when it is asked for."""

from .. import names
from ..names import resolver

__getattr__ = resolver(__name__)
__all__ = sorted(name for name, home in names.HOMES.items() if not home.startswith("pytorch."))


def __dir__():
    return sorted({*globals(), *__all__})
