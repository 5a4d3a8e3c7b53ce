# SPDX-License-Identifier: Apache-2.0
"""With JAX in the same process: arrays pass in both directions without a copy."""

import pytest

import accel

jax = pytest.importorskip("jax", reason="there is no JAX")


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "bfloat16", "complex64"])
def test_arrays_are_tensors(dtype):
    array = jax.numpy.ones((2, 3), dtype=dtype)
    for tensor in (accel.as_tensor(array), accel.from_dlpack(array)):
        assert tensor.data_ptr() == array.unsafe_buffer_pointer() and tensor.dtype == dtype and tensor.shape == (2, 3)
    assert (accel.ones(3) + jax.numpy.arange(3.0)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "bfloat16"])
def test_tensors_are_arrays(dtype):
    tensor = accel.ones(4, 5, dtype=dtype)
    for array in (jax.numpy.from_dlpack(tensor), jax.dlpack.from_dlpack(tensor)):
        assert array.unsafe_buffer_pointer() == tensor.data_ptr() and array.dtype.name == dtype
    address = tensor.data_ptr()
    del tensor
    assert array.unsafe_buffer_pointer() == address and array.sum() > 0  # the memory lives as long as the array


def test_forwards_in_jax():
    class Net(accel.nn.Module):
        def forward(self, x):
            return jax.jit(lambda rows: rows * 2)(jax.numpy.from_dlpack(x))

    assert Net()(accel.ones(2)).tolist() == [2, 2]
