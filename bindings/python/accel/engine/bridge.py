# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch and of the engine are the same ones: both have the one LibTorch of the process.

A tensor that crosses keeps its memory and its autograd history. The engine's side holds a reference of the C++ object, and a tensor that
comes back is the same Python object when there is one.
"""

import ctypes

import torch
from torch._C._dynamo import eval_frame

from .. import capi
from ..built_for import TORCH_VERSION as _VERSION
from . import libtorch

libtorch.check_torch()
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_wrap = torch._C._wrap_tensor_impl


def not_traced(function):
    """Keeps torch.compile out of a function, not out of those that it calls. (torch.compiler.disable() would import the compiler.)"""
    function._torchdynamo_disable = True
    skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
    eval_frame.set_code_exec_strategy(function.__code__, skip)
    return function


@not_traced
def from_torch(tensor: torch.Tensor) -> capi.accel_tensor:
    """The tensor in the engine."""
    return capi.accel_tensor_share_torch(tensor._cdata, _VERSION)


@not_traced
def to_torch(tensor: capi.accel_tensor, known: "torch.Tensor | None" = None) -> torch.Tensor:
    """The tensor in torch; `known` where it is that one, which takes less time."""
    address = capi.accel_tensor_torch_impl(tensor, _VERSION)
    return known if known is not None and known._cdata == address else _wrap(_new_capsule(address, None, None))
