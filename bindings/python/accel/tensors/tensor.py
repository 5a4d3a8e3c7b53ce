# SPDX-License-Identifier: Apache-2.0
"""Tensors of LibTorch. They lend their memory to NumPy, torch, JAX and CuPy: `numpy()`, DLPack."""

import builtins
from typing import TYPE_CHECKING, Any, Callable

from .. import capi
from ..generated import methods
from . import dtypes, indexing, ops
from .creation import as_tensor, tensor
from .device import CPU, Device, names_device
from .text import format_tensor

_call = capi.accel_op_call


def _binary(name):
    """The method of an infix operator; of two tensors it goes the short way."""
    plain = capi.accel_op_find(f"aten::{name}", "Tensor")

    def method(self, other):
        if type(other) is Tensor:
            return _call(plain, (self, other))[0]
        return ops.declare(name)(self, other) if _is_operand(other) else NotImplemented

    return method


def _in_place(name):
    return lambda self, other: ops.declare(name + "_")(self, other) if _is_operand(other) else NotImplemented


def _of_engine(function: Any) -> Any:
    """A property that the engine tells, with the text of the header."""
    return property(function)


def _converts_to(dtype):
    """The method that converts to an element type."""
    return lambda self: self.to(dtype)


def _is_operand(value):
    return isinstance(value, (Tensor, int, builtins.float)) or hasattr(value, "__dlpack__")


def backward_options(gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """The arguments of a backward for the engine. The caller keeps the gradient while the call lasts."""
    if gradient is None and retain_graph is None and not create_graph and inputs is None:
        return None
    options = capi.accel_backward_options_t()
    options.create_graph = int(create_graph)
    if retain_graph is not None:
        options.retain_graph = int(retain_graph)
    if gradient is not None:
        options.gradient = gradient
    if inputs is not None:
        options.inputs = inputs if isinstance(inputs, Tensor) else list(inputs)
    return options


class Tensor(methods.Tensor, capi.accel_tensor):
    """A tensor. Every operator of LibTorch is a method: `x.softmax(-1)`; `accel.ops` lists them."""

    __slots__ = ()
    locals().update({name: ops.declare(name) for name in ops.names() if not name.startswith("_") and name not in {"data", *vars(methods.Tensor)}})

    if TYPE_CHECKING:  # the operators of LibTorch
        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def __new__(cls, data, dtype=None, device=None, requires_grad=False):
        return tensor(data, dtype, device, requires_grad)

    def __init__(self, *_, **__):  # the engine has made it already
        pass

    # What it is

    shape: "tuple[builtins.int, ...]" = _of_engine(capi.accel_tensor_shape)
    ndim: "builtins.int" = _of_engine(capi.accel_tensor_ndim)
    nbytes: "builtins.int" = _of_engine(capi.accel_tensor_nbytes)
    device: Device = _of_engine(capi.accel_tensor_device)

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    @property
    def dtype(self) -> dtypes.DType:
        return dtypes.of_number(capi.accel_tensor_dtype(self))

    def is_floating_point(self):
        return self.dtype.is_floating_point

    # Autograd

    @property
    def requires_grad(self) -> "builtins.bool":
        return builtins.bool(capi.accel_tensor_requires_grad(self))

    @requires_grad.setter
    def requires_grad(self, value):
        capi.accel_tensor_set_requires_grad(self, int(value))

    def requires_grad_(self, requires_grad: "builtins.bool" = True) -> "Tensor":
        self.requires_grad = requires_grad
        return self

    @property
    def grad(self) -> "Tensor | None":
        return capi.accel_tensor_grad(self)

    @grad.setter
    def grad(self, gradient):
        capi.accel_tensor_set_grad(self, gradient)

    @grad.deleter
    def grad(self):
        capi.accel_tensor_set_grad(self, None)

    def backward(self, gradient: "Tensor | None" = None, retain_graph: "builtins.bool | None" = None,
                 create_graph: "builtins.bool" = False, inputs: Any = None) -> None:
        """Without loss scaling, accumulation and other ranks: prefer `Accelerator.backward()`."""
        capi.accel_tensor_backward(self, backward_options(gradient, retain_graph, create_graph, inputs))

    # Copies and conversions

    def to(self, *goals: Any, dtype: Any = None, device: Any = None, non_blocking: "builtins.bool" = False) -> "Tensor":
        """`to("cuda")`, `to(accel.float16)`, `to(device=..., dtype=...)`: the same memory when nothing changes."""
        for goal in goals:
            if names_device(goal):
                device = goal
            elif isinstance(goal, Tensor):
                dtype, device = goal.dtype, goal.device
            else:
                dtype = goal
        number = capi.ACCEL_UNSET if dtype is None else dtypes.dtype(dtype).number
        return capi.accel_tensor_to(self, number, self.device if device is None else Device(device), int(non_blocking))

    def cpu(self):
        return self.to(CPU)

    def cuda(self, index=None):
        return self.to("cuda" if index is None else f"cuda:{index}")

    float, double = _converts_to(dtypes.float32), _converts_to(dtypes.float64)
    half, bfloat16 = _converts_to(dtypes.float16), _converts_to(dtypes.bfloat16)
    long, int, bool = _converts_to(dtypes.int64), _converts_to(dtypes.int32), _converts_to(dtypes.bool)

    def copy_(self, source: Any) -> "Tensor":
        """Copies elements, converting dtype and device, broadcasting shapes."""
        capi.accel_tensor_copy(self, as_tensor(source))
        return self

    def item(self) -> Any:
        """The number in a tensor of one element."""
        dtype = self.dtype
        if dtype.is_floating_point:
            return capi.accel_tensor_item(self)
        number = capi.accel_tensor_item_int(self)
        return builtins.bool(number) if dtype == "bool" else number

    def tolist(self) -> Any:
        if self.dtype.is_complex:
            return _complex_numbers(capi.accel_listify(ops.view_as_real(ops.resolve_conj(self.detach()))), self.ndim)
        return capi.accel_listify(self)

    def numpy(self) -> Any:
        """A NumPy array that shares the memory."""
        if self.requires_grad:
            raise RuntimeError("the tensor requires a gradient; use tensor.detach().numpy()")
        import numpy

        return numpy.asarray(self)

    @property
    def __array_interface__(self):
        if self.device.type != "cpu":
            raise TypeError(f"the tensor is on {self.device}; use tensor.cpu()")
        dtype = self.dtype
        if dtype not in dtypes.TYPESTRINGS:
            raise TypeError(f"NumPy has no {dtype}; use tensor.float()")
        return {"version": 3, "shape": self.shape, "typestr": dtypes.TYPESTRINGS[dtype], "data": (self.data_ptr(), False),
                "strides": tuple(step * dtype.itemsize for step in self.stride())}

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        lent = self if dl_device is None or dl_device == self.__dlpack_device__() else self.to(_device_of_dlpack(dl_device))
        if copy is False and lent is not self:
            raise BufferError(f"the tensor is on {self.device}: another device needs a copy")
        if copy and lent is self:
            lent = self.clone()
        if max_version is not None and max_version[0] >= 1:
            return capi.accel_tensor_to_dlpack(lent)
        return capi.accel_tensor_to_dlpack_unversioned(lent)

    def __dlpack_device__(self):
        device = self.device
        return (_DLPACK_TYPES.get(device.type, _DLPACK_OUT_OF_TREE), builtins.max(device.index, 0))

    # Parts

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __iter__(self):
        return iter(ops.unbind(self, 0)) if len(self) else iter(())

    def __getitem__(self, index):
        return indexing.get(self, index)

    def __setitem__(self, index, value):
        indexing.put(self, index, value)

    T = property(ops.declare("t"))
    mT = property(lambda self: ops.transpose(self, -2, -1))

    # Numbers

    def __bool__(self):
        return builtins.bool(self.item())

    def __float__(self):
        return builtins.float(self.item())

    def __int__(self):
        return builtins.int(self.item())

    def __index__(self):
        if self.dtype.is_floating_point:
            raise TypeError(f"a tensor of {self.dtype} is not an index")
        return capi.accel_tensor_item_int(self)

    __add__ = __radd__ = _binary("add")
    __sub__ = _binary("sub")
    __mul__ = __rmul__ = _binary("mul")
    __truediv__ = _binary("div")
    __mod__ = _binary("remainder")
    __eq__, __ne__ = _binary("eq"), _binary("ne")
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")
    __and__ = __rand__ = _binary("bitwise_and")
    __or__ = __ror__ = _binary("bitwise_or")
    __xor__ = __rxor__ = _binary("bitwise_xor")
    __iadd__, __isub__, __imul__, __itruediv__ = _in_place("add"), _in_place("sub"), _in_place("mul"), _in_place("div")

    __floordiv__, __pow__, __rsub__, __matmul__ = map(ops.declare, ("floor_divide", "pow", "rsub", "matmul"))
    __neg__, __abs__, __invert__ = map(ops.declare, ("neg", "abs", "bitwise_not"))

    def __rpow__(self, other):
        return ops.pow(other, self)

    def __rtruediv__(self, other):
        return ops.mul(ops.reciprocal(self), other)

    def __pos__(self):
        return self

    def __rmatmul__(self, other):
        return ops.matmul(other, self)

    def __hash__(self):
        return builtins.id(self)

    # Everything else

    is_leaf = property(ops.declare("is_leaf"))

    def __repr__(self):
        return format_tensor(self)

    def __format__(self, spec):
        return format(self.item(), spec) if spec else str(self)

    def __reduce__(self):
        return _rebuild, (self.dtype, self.shape, bytes(_bytes_of(self)), self.requires_grad)

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("only leaves can be deep-copied: detach() the tensor, or clone() it")
        copied = memo[builtins.id(self)] = self.detach().clone()
        if self.requires_grad:
            copied.requires_grad = True
        if self.grad is not None:
            copied.grad = self.grad.detach().clone()
        return copied


capi.use_class(Tensor)
_DLPACK_TYPES = {"cpu": 1, "cuda": 2, "mps": 8, "xpu": 14}
_DLPACK_OUT_OF_TREE = 12


def _device_of_dlpack(pair):
    names = {number: name for name, number in _DLPACK_TYPES.items()}
    if pair[0] not in names:
        raise BufferError(f"DLPack's device type {pair[0]} is not that of the tensor: move the tensor with to() first")
    return names[pair[0]] if pair[0] == 1 else f"{names[pair[0]]}:{pair[1]}"


def _bytes_of(tensor):
    """The elements of a tensor, row-major."""
    import ctypes

    flat = tensor.detach().cpu().contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.nbytes) if flat.nbytes else b""


def _rebuild(dtype, shape, data, requires_grad=False):
    made = capi.accel_tensor_from_data(data, list(shape), dtypes.dtype(dtype).number)
    return made.requires_grad_() if requires_grad else made


def _complex_numbers(parts, depth):
    """Nested lists of complex numbers from lists of their two parts."""
    return complex(*parts) if depth == 0 else [_complex_numbers(part, depth - 1) for part in parts]
