# Parameters only: for programs that compute gradients by themselves, without LibTorch's autograd.

@doc """
    Parameters(state, model; bucket_cap_mb)

The trainable parameters of a model, whose gradients Julia computes. All ranks start from rank 0's values. In each micro-batch
report every gradient with `grad_ready!`, then `synchronize!`: gradients are averaged over the ranks meanwhile. Parameters are
numbered from 1, in the order of `parameters(model)`.
""" Parameters

"""    grad_ready!(parameters, index, gradient)

A tensor or an array is copied; without one, the gradient was written in its own memory."""
grad_ready!(parameters::Parameters, index::Integer, gradient::Tensor) =
    (LibAccel.accel_parameters_grad_ready(parameters, index - 1, gradient); nothing)
grad_ready!(parameters::Parameters, index::Integer) = (LibAccel.accel_parameters_grad_ready(parameters, index - 1, C_NULL); nothing)
grad_ready!(parameters::Parameters, index::Integer, gradient::Array) = grad_ready!(parameters, index, Tensor(gradient))

