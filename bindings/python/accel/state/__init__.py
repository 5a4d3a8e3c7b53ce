"""The job and the machine: ranks, environment, settings, memory, random numbers."""

from ..compat.names import resolver

__getattr__ = resolver(__name__, "process")
