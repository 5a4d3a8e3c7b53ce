"""Distributed training through libaccel.

`accel.capi` is the low layer: the functions of accel.h under their names, with Python's own values and strings. A function
that fails raises `Error`; where its status says more than success, for example at the end of a loader, the status is the
first result. Handles are released when Python no longer uses them.
"""

try:
    from . import capi
    from .capi import Error
except ImportError as error:
    if "undefined symbol" not in str(error):
        raise
    raise ImportError(f"another version of LibTorch is loaded than the one libaccel was built for, probably by "
                      f"`import torch`; docs/libtorch.md says what to do ({error})") from error

__all__ = ["Error", "capi"]
