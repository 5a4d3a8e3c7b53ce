# Parameters only: for programs that compute gradients by themselves, without LibTorch's autograd.

@doc """
    Parameters(state, model; bucket_cap_mb)

The trainable parameters of a model, whose gradients Julia computes. All ranks start from rank 0's values. In each micro-batch
report every gradient with `grad_ready!`, then `synchronize!`: gradients are averaged over the ranks meanwhile. Parameters are
numbered from 1, in the order of `parameters(model)`.
""" Parameters
Parameters(state::State, model::Model; options...) = with_options(LibAccel.accel_parameters_options_t; options...) do given
    made(Parameters, out -> LibAccel.accel_parameters_create(state, model, given, out))
end

"""    gradient(parameters, index)

The memory of a gradient: what is written into `view_array(gradient(...))` is not copied. After `synchronize!` it holds the mean."""
gradient(parameters::Parameters, index::Integer) =
    made(Tensor, out -> LibAccel.accel_parameters_gradient(parameters, index - 1, out))

"""    grad_ready!(parameters, index, gradient)

A tensor or an array is copied; without one, the gradient was written in its own memory."""
grad_ready!(parameters::Parameters, index::Integer, gradient::Tensor) =
    (LibAccel.accel_parameters_grad_ready(parameters, index - 1, gradient); nothing)
grad_ready!(parameters::Parameters, index::Integer) = (LibAccel.accel_parameters_grad_ready(parameters, index - 1, C_NULL); nothing)
grad_ready!(parameters::Parameters, index::Integer, gradient::Array) = grad_ready!(parameters, index, Tensor(gradient))

"""The end of a micro-batch: gradients are the mean over the ranks when it returns in the last one of a group."""
synchronize!(parameters::Parameters) =
    done_in_place(LibAccel.accel_parameters_synchronize, LibAccel.accel_parameters_synchronize_async, parameters)
"""Starts `synchronize!`."""
synchronize_async!(parameters::Parameters) = start(out -> LibAccel.accel_parameters_synchronize_async(parameters, out))
