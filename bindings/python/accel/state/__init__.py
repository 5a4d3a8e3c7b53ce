# SPDX-License-Identifier: Apache-2.0
"""The job and the machine: ranks, environment, settings, memory, random numbers."""

from ..compat.names import resolver

__getattr__ = resolver(__name__, "process")
