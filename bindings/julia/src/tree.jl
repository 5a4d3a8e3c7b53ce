# Functions on every tensor of a nested value.

"""    map_tensors(function, value): the same tree with the function applied to each tensor"""
map_tensors(change::Function, x; error_on_other_type = false) = result(out -> lend(value -> LibAccel.accel_recursively_apply(
    value, error_on_other_type, tensor_callback(), keep(change), destroy(), out), x))
"""    concatenate(trees; dim = 1): trees of one structure, joined tensor by tensor"""
concatenate(trees; dim = 1) = result(out -> lend(value -> LibAccel.accel_concatenate(value, dim - 1, out), trees))
"""    send_to_device(value, device; non_blocking = false)"""
send_to_device(x, place; non_blocking = false) = result(out -> lend(value -> LibAccel.accel_send_to_device(
    value, as_device(place), non_blocking, C_NULL, 0, out), x))
"""Float16 and BFloat16 tensors become Float32."""
convert_to_fp32(x) = result(out -> lend(value -> LibAccel.accel_convert_to_fp32(value, out), x))
"""Rows of the first tensor of a value."""
find_batch_size(x) = lend(value -> output(out -> LibAccel.accel_find_batch_size(value, out), Int64), x)
