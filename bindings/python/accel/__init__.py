"""Distributed training through libaccel.

`accel.capi` is the low layer: the functions of accel.h under their names, with Python's own values and strings. A function
that fails raises `Error`; where its status says more than success, for example at the end of a loader, the status is the
first result. Handles are released when Python no longer uses them.
"""

from . import capi
from .capi import Error

__all__ = ["Error", "capi"]
