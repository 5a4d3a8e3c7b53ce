# SPDX-License-Identifier: Apache-2.0
# Optimizers: those of torch.optim and others with its names, and updates that Julia computes.

@doc """
    Optimizer(model; states = [], lr, weight_decay = 0) do parameter, gradient, states, step, lr, weight_decay ... end

An optimizer whose update is a Julia function. It changes the tensors in place; `states` maps each name to a tensor like the
parameter, zeros at first.
""" Optimizer
function Optimizer(update::Function, model::Union{Model,Nothing}; states = String[], lr = 1e-3, weight_decay = 0.0)
    names = String[string(name) for name in states]
    return made(Optimizer, out -> LibAccel.accel_optimizer_create(something(model, C_NULL), names, length(names), lr, weight_decay,
                                                         update_callback(), keep(update), destroy(), out))
end

"""    step!(optimizer) do ... loss end

One update by the gradients of the function, which zeroes the gradients, runs forward and backward, and gives the loss. The result is
the loss, or nothing where gradients accumulate and the function was not called."""
function step!(evaluate::Function, optimizer::Optimizer)
    pointer = output(Ptr{LibAccel.accel_tensor_t}) do out
        LibAccel.accel_optimizer_step_closure(optimizer, closure_callback(), keep(evaluate), destroy(), out)
    end
    return pointer == C_NULL ? nothing : Tensor(pointer)
end

describe(io::IO, optimizer::Optimizer) =
    print(io, "Optimizer(lr ", join((learning_rate(optimizer; group = group) for group in 1:num_groups(optimizer)), ", "), ")")
