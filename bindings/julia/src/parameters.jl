# SPDX-License-Identifier: Apache-2.0
# Parameters only: for programs that compute gradients by themselves, without LibTorch's autograd.

@doc """
    Parameters(state, tree; options...)

The parameters of a program that has an autograd of its own, over its own arrays: they are what the program computes with, before and
after each step. `tree` is a named tuple of arrays, or of further trees, as of Lux; a dictionary, a tuple, or an object whose fields
are such, as a layer of Flux. Arrays of floating point are parameters, anything else in it is left alone. A name is the path,
"layer_1.weight". What is not trained, such as a running mean, does not belong into it. All ranks get rank 0's values.

    parameters = Parameters(state, network)
    optimizer = prepare(state, AdamW(Model(parameters); lr = 0.01))
    for batch in loader
        step!(parameters, optimizer, gradient(network, batch))
    end

    Parameters(state, model; bucket_cap_mb)

The trainable parameters of a model, whose gradients the program reports one by one with `grad_ready!`; then `synchronize!`. They are
numbered from 1, in the order of `parameters(model)`.
""" Parameters

function Parameters(state::State, tree; options...)
    arrays = named_arrays(tree)
    isempty(arrays) && refuse("a ", typeof(tree), " has no arrays of floating point; expected named ones")
    parameters = made(Parameters, out -> lend(tensors_of(arrays)) do value
        with_options(given -> LibAccel.accel_parameters_register(state, value, given, out), LibAccel.accel_parameters_options_t; options...)
    end)
    parameters.sizes = Dict(name => size(array) for (name, array) in arrays)
    return parameters
end

"""    step!(parameters, optimizer, gradients; max_grad_norm, grad_norm_type = 2, allow_missing = false)

One micro-batch, whose gradients are a tree of the form of the parameters; `nothing` in it has none. In the last one of a window the
gradients are averaged over the ranks and clipped, and the weights are updated in their own memory. Gives the norm before, NaN in
micro-batches that only add."""
function step!(parameters::Parameters, optimizer::Optimizer, gradients; options...)
    arrays = named_arrays(gradients)
    for (name, array) in arrays # in words of arrays: the library would say the sizes of their tensors
        expected = parameters.sizes === nothing ? size(array) : get(parameters.sizes, name, size(array))
        size(array) == expected || throw(DimensionMismatch("the gradient of $name has the size $(size(array)); expected $expected"))
    end
    return output(Float64) do out
        lend(tensors_of(arrays)) do value
            with_options(given -> LibAccel.accel_parameters_step(parameters, optimizer, value, given, out),
                LibAccel.accel_parameters_step_options_t; options...)
        end
    end
end
describe(io::IO, parameters::Parameters) =
    print(io, "Parameters(", parameters.sizes === nothing ? "of a model" : "$(length(parameters.sizes)) arrays", ")")

"""The arrays of a tree, by their paths."""
named_arrays(tree) = (found = Pair{String,Any}[]; name_arrays!(found, "", tree); found)
"""Dimensions of their tensors are reversed: so an array has no gaps."""
tensors_of(arrays) = Map(name => to_tensors(array) for (name, array) in arrays)
name_arrays!(found, path, x::Union{AbstractArray{<:Union{AbstractFloat}},Tensor}) =
    (push!(found, (isempty(path) ? "parameters" : path) => x); nothing)
name_arrays!(found, path, x::Union{NamedTuple,Tuple,AbstractVector,AbstractDict}) =
    foreach(((name, part),) -> name_arrays!(found, joined(path, name), part), pairs(x))
name_arrays!(found, path, ::Union{Nothing,Number,AbstractString,Symbol,Function,Type,Module,AbstractArray{<:Number}}) = nothing
name_arrays!(found, path, x) = foreach(name -> name_arrays!(found, joined(path, name), getfield(x, name)), fieldnames(typeof(x)))
name_arrays!(found, path, x::AbstractVector{<:AbstractFloat}) = (push!(found, (isempty(path) ? "parameters" : path) => x); nothing)
name_arrays!(found, path, ::AbstractVector{<:Union{Integer,Complex}}) = nothing
joined(path, name) = isempty(path) ? string(name) : string(path, ".", name)

"""    grad_ready!(parameters, index, gradient)

A tensor or an array is copied; without one, the gradient was written in its own memory."""
grad_ready!(parameters::Parameters, index::Integer, gradient::Tensor) =
    (LibAccel.accel_parameters_grad_ready(parameters, index - 1, gradient); nothing)
grad_ready!(parameters::Parameters, index::Integer) = (LibAccel.accel_parameters_grad_ready(parameters, index - 1, C_NULL); nothing)
grad_ready!(parameters::Parameters, index::Integer, gradient::Array) = grad_ready!(parameters, index, Tensor(gradient))
