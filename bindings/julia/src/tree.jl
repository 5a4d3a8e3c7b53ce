# Functions on every tensor of a nested value.

"""    map_tensors(function, value): the same tree with the function applied to each tensor"""
map_tensors(change::Function, x; error_on_other_type = false) = result(out -> lend(value -> LibAccel.accel_recursively_apply(
    value, error_on_other_type, tensor_callback(), keep(change), destroy(), out), x))
"""    concatenate(trees; dim = 1): trees of one structure, joined tensor by tensor"""
concatenate(trees; dim = 1) = result(out -> lend(value -> LibAccel.accel_concatenate(value, dim - 1, out), trees))
"""Tensors become nested lists of numbers."""
listify(x) = result(out -> lend(value -> LibAccel.accel_listify(value, out), x))
"""    slice_tensors(value, 2:3): these rows of each tensor, as views"""
slice_tensors(x, rows::AbstractUnitRange) =
    result(out -> lend(value -> LibAccel.accel_slice_tensors(value, first(rows) - 1, last(rows), out), x))
"""    pad_input_tensors(value, num_processes; dim = 1): zeros behind each tensor, so that processes can share it equally"""
pad_input_tensors(x, num_processes; dim = 1) =
    result(out -> lend(value -> LibAccel.accel_pad_input_tensors(value, num_processes, dim - 1, out), x))
"""Whether two values have the same structure, numbers, and tensors of the same elements."""
equal(a, b) = lend(one -> lend(other -> output(out -> LibAccel.accel_value_equal(one, other, out), Int32) != 0, b), a)
"""    send_to_device(value, device; non_blocking = false)"""
send_to_device(x, place; non_blocking = false) = result(out -> lend(value -> LibAccel.accel_send_to_device(
    value, as_device(place), non_blocking, C_NULL, 0, out), x))
"""Float16 and BFloat16 tensors become Float32."""
convert_to_fp32(x) = result(out -> lend(value -> LibAccel.accel_convert_to_fp32(value, out), x))
"""Rows of the first tensor of a value."""
find_batch_size(x) = lend(value -> output(out -> LibAccel.accel_find_batch_size(value, out), Int64), x)
