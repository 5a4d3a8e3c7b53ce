# SPDX-License-Identifier: Apache-2.0
# Functions on every tensor of a nested value.

"""    map_tensors(function, value): the same tree with the function applied to each tensor"""
map_tensors(change::Function, x; error_on_other_type = false) = result(out -> lend(value -> LibAccel.accel_recursively_apply(
    value, error_on_other_type, tensor_callback(), keep(change), destroy(), out), x))
"""Whether two values have the same structure, numbers, and tensors of the same elements."""
equal(a, b) = lend(one -> lend(other -> output(out -> LibAccel.accel_value_equal(one, other, out), Int32) != 0, b), a)
