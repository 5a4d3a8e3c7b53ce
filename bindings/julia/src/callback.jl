# SPDX-License-Identifier: Apache-2.0
# Functions that C calls back: always on the thread of the outer call. `user_data` roots the function (keep.jl), and nothing is
# thrown through C: what a function throws comes out of the outer call (errors.jl).

"""Runs a callback; its exception becomes a status."""
function callback_status(body::Function)
    try
        body()
        return LibAccel.ACCEL_OK
    catch exception
        return carry(exception)
    end
end

"""Runs a callback whose result is a number; its exception becomes a negative one."""
function callback_number(body::Function)
    try
        return Int64(body())
    catch exception
        return Int64(carry(exception))
    end
end

give(out::Ptr{CValue}, object) = (unsafe_store!(out, owned(object)); nothing)
model_of(handle::Ptr{LibAccel.accel_module_t}) = Model(LibAccel.accel_module_retain(handle))
tensor_of(handle::Ptr{LibAccel.accel_tensor_t}) = Tensor(LibAccel.accel_tensor_retain(handle))

run_forward(model, inputs, n_inputs, out, block) = callback_status() do
    arguments = ntuple(i -> borrowed(unsafe_load(inputs, i)), n_inputs)
    give(out, object_of(block)(model_of(model), arguments...))
end
forward_callback() = @cfunction(run_forward, Int32, (Ptr{LibAccel.accel_module_t}, Ptr{CValue}, Csize_t, Ptr{CValue}, Ptr{Cvoid}))

run_hook(model, values, out, block) = callback_status() do
    replaced = object_of(block)(model_of(model), borrowed(unsafe_load(values))...)
    replaced === nothing || give(out, replaced isa Tuple ? replaced : (replaced,))
end
hook_callback() = @cfunction(run_hook, Int32, (Ptr{LibAccel.accel_module_t}, Ptr{CValue}, Ptr{CValue}, Ptr{Cvoid}))

run_tensor(tensor, out, block) = callback_status() do
    made = object_of(block)(tensor_of(tensor))::Tensor
    unsafe_store!(out, LibAccel.accel_tensor_retain(raw(made)))
end
tensor_callback() = @cfunction(run_tensor, Int32, (Ptr{LibAccel.accel_tensor_t}, Ptr{Ptr{LibAccel.accel_tensor_t}}, Ptr{Cvoid}))

run_update(parameter, gradient, states, step, lr, weight_decay, block) = callback_status() do
    object_of(block)(tensor_of(parameter), tensor_of(gradient), borrowed(unsafe_load(states)), step, lr, weight_decay)
end
update_callback() = @cfunction(run_update, Int32,
    (Ptr{LibAccel.accel_tensor_t}, Ptr{LibAccel.accel_tensor_t}, Ptr{CValue}, Int64, Float64, Float64, Ptr{Cvoid}))

run_closure(out, block) = callback_status() do
    loss = object_of(block)()::Tensor
    unsafe_store!(out, LibAccel.accel_tensor_retain(raw(loss)))
end
closure_callback() = @cfunction(run_closure, Int32, (Ptr{Ptr{LibAccel.accel_tensor_t}}, Ptr{Cvoid}))

# It has no status: NaN is refused by the scheduler, and then the exception comes out.
function run_factor(step, block)
    factor = NaN
    callback_status(() -> (factor = Float64(object_of(block)(step)))) == LibAccel.ACCEL_OK || carried_as(LibAccel.ACCEL_ERROR_INVALID_ARGUMENT)
    return factor
end
factor_callback() = @cfunction(run_factor, Float64, (Int64, Ptr{Cvoid}))

run_seed(seed, block) = callback_status(() -> object_of(block)(seed))
seed_callback() = @cfunction(run_seed, Int32, (Int64, Ptr{Cvoid}))

run_comm_hook(buffer, bucket, is_last, block) = callback_status(() -> object_of(block)(tensor_of(buffer), Int(bucket), is_last != 0))
comm_hook_callback() = @cfunction(run_comm_hook, Int32, (Ptr{LibAccel.accel_tensor_t}, Int64, Int32, Ptr{Cvoid}))

run_fp8_filter(name, weight, out, block) = callback_status() do
    covered = object_of(block)(unsafe_string(name), tensor_of(weight))
    covered === nothing || give(out, covered)
end
fp8_filter_callback() = @cfunction(run_fp8_filter, Int32, (Ptr{Cchar}, Ptr{LibAccel.accel_tensor_t}, Ptr{CValue}, Ptr{Cvoid}))

run_generated(tokens, out, block) = callback_status() do
    goes_on = object_of(block)(tensor_of(tokens))
    goes_on === nothing || give(out, goes_on)
end
generated_callback() = @cfunction(run_generated, Int32, (Ptr{LibAccel.accel_tensor_t}, Ptr{CValue}, Ptr{Cvoid}))

run_pipeline_loss(returned, targets, out, block) = callback_status() do
    loss = object_of(block)(borrowed(unsafe_load(returned)), borrowed(unsafe_load(targets)))::Tensor
    unsafe_store!(out, LibAccel.accel_tensor_retain(raw(loss)))
end
pipeline_loss_callback() = @cfunction(run_pipeline_loss, Int32, (Ptr{CValue}, Ptr{CValue}, Ptr{Ptr{LibAccel.accel_tensor_t}}, Ptr{Cvoid}))

run_save_state(out, block) = callback_status(() -> give(out, first(object_of(block))()))
save_state_callback() = @cfunction(run_save_state, Int32, (Ptr{CValue}, Ptr{Cvoid}))
run_load_state(state, block) = callback_status(() -> last(object_of(block))(borrowed(unsafe_load(state))))
load_state_callback() = @cfunction(run_load_state, Int32, (Ptr{CValue}, Ptr{Cvoid}))

run_checkpoint_hook(models, folder, out, block) = callback_status() do
    replaced = object_of(block)(borrowed(unsafe_load(models)), unsafe_string(folder))
    replaced === nothing || give(out, replaced)
end
checkpoint_hook_callback() = @cfunction(run_checkpoint_hook, Int32, (Ptr{CValue}, Ptr{Cchar}, Ptr{CValue}, Ptr{Cvoid}))

run_batch_size(batch_size, block) = callback_status(() -> object_of(block)(Int(batch_size)))
batch_size_callback() = @cfunction(run_batch_size, Int32, (Int64, Ptr{Cvoid}))

run_work(status, block) = callback_status(() -> object_of(block)(status))
work_callback() = @cfunction(run_work, Int32, (Int32, Ptr{Cvoid}))
