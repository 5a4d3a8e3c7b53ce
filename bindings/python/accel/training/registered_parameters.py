# SPDX-License-Identifier: Apache-2.0
"""The door for other autograds: parameters in the memory of NumPy or another library, whose gradients that library computes."""

from collections.abc import Mapping

from .. import capi
from ..engine.values import to_engine
from ..modules.module import Module, Parameters
from ..state.job import current
from ..state.options import fill
from ..tensors.creation import as_tensor
from ..tensors.tensor_type import is_tensor
from .own_gradients import parameters_options


def register_parameters(accelerator, tensors, bucket_cap_mb=None, fsdp_plugin=None):
    """The parameters of a program that computes gradients by itself, as RegisteredParameters. `tensors` maps names to arrays of NumPy or tensors,
    whose memory is trained in place; maps and lists in it are levels, so {"layer": {"weight": w}} is the same as {"layer.weight": w}.
    Arrays of JAX cannot be changed: keep the parameters in arrays of NumPy, and hand those to functions of JAX."""
    return RegisteredParameters(accelerator, tensors, bucket_cap_mb, fsdp_plugin)


class RegisteredParameters:
    """Parameters in memory of the program, which stays where it is. All ranks begin with the values of rank 0.

        parameters = accel.register_parameters(accelerator, {"weight": weight, "bias": bias})
        optimizer = accelerator.prepare(optim.AdamW(parameters.module.parameters(), lr=0.001))
        for batch in batches:
            parameters.step(optimizer, {"weight": ..., "bias": ...})    # `weight` and `bias` have the new values

    Under `fsdp_plugin`, which is that of the Accelerator unless one is given, gradients and states of optimizers are sharded; the memory of
    the program stays whole.
    """

    def __init__(self, accelerator, tensors, bucket_cap_mb=None, fsdp_plugin=None):
        options, _pointed_to = parameters_options(bucket_cap_mb, fsdp_plugin, None)
        self._arrays = _named(tensors)
        memory = {name: _memory_of(name, array) for name, array in self._arrays.items()}
        self.handle = capi.accel_parameters_register(current(accelerator), memory, options)
        self.module = Module.of_handle(capi.accel_parameters_module(self.handle))

    def __getitem__(self, name):
        """The array that was registered."""
        return self._arrays[name]

    def __iter__(self):
        return iter(self._arrays)

    def __len__(self):
        return len(self._arrays)

    def parameters(self):
        """For optimizers, and accelerator.clip_grad_norm_()."""
        return Parameters(self.module)

    def step(self, optimizer, gradients, max_grad_norm=None, grad_norm_type=None, allow_missing=False):
        """A micro-batch: its gradients by the names of their parameters, or in the structure that was registered. They may be arrays of
        JAX, which are read without a copy of Python's. In the last micro-batch of a group they are averaged over the ranks, clipped, and
        the optimizer updates the arrays. The joint norm before clipping; NaN in micro-batches that only add."""
        options = fill(capi.accel_parameters_step_options_t(),
                       {"max_grad_norm": None if max_grad_norm is None else float(max_grad_norm),
                        "grad_norm_type": None if grad_norm_type is None else float(grad_norm_type), "allow_missing": bool(allow_missing)})
        given = {name: to_engine(gradient) for name, gradient in _named(gradients).items()}
        return capi.accel_parameters_step(self.handle, optimizer.handle, given, options)


def _named(tree, prefix=""):
    """A tree of maps and lists as one map, with dots for the levels."""
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, (list, tuple)) else None
    if items is None:
        return {prefix: tree}
    named = {}
    for key, item in items:
        named.update(_named(item, f"{prefix}.{key}" if prefix else str(key)))
    return named


def _memory_of(name, array):
    """A tensor over the memory of an array; refuses what would be a copy, or must not be written to."""
    if is_tensor(array):
        return array
    try:
        view = memoryview(array)
        fixed, strided = view.readonly, not view.c_contiguous
    except (TypeError, BufferError, ValueError):
        fixed, strided = type(array).__module__.partition(".")[0] in ("jax", "jaxlib"), False
    if fixed:
        raise TypeError(f"parameter {name!r} is a {type(array).__name__} that cannot be changed in place; expected memory of the program: "
                        "numpy.array() of it")
    if strided:
        raise ValueError(f"parameter {name!r} is not contiguous; expected numpy.ascontiguousarray() of it")
    if not hasattr(array, "__dlpack__") and not hasattr(array, "__array_interface__") and not isinstance(array, memoryview):
        raise TypeError(f"parameter {name!r} is a {type(array).__name__}; expected an array of NumPy, or a tensor")
    return to_engine(array) if hasattr(array, "__dlpack__") else as_tensor(array)
