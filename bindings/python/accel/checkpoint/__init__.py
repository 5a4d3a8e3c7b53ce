"""States in files."""

from ..compat.names import resolver

__getattr__ = resolver(__name__, "files")
