# SPDX-License-Identifier: Apache-2.0
# Tensors of LibTorch. Their indices are Julia's, from 1; LibTorch's operators (`aten`) keep LibTorch's own numbering.

@doc """
    Tensor(array; reversed = false)

Shares the memory of a Julia array without a copy. Indices stay as they are: a column-major array becomes a tensor with the strides
of an array. `reversed = true` reverses the dimensions instead, and the tensor is row-major without gaps: an array of
(features, batch) is a tensor of [batch, features], which is what LibTorch computes fastest, and collectives in place ask for.

    Tensor(undef, Float32, 2, 3), Accel.zeros(Float32, 2, 3), Accel.ones(...), full(1.5, 2, 3), Accel.randn(Float32, 2, 3)

A strided view of an array is shared too. What has no memory that a tensor could share is refused, and never copied without a word:
see [`shared_memory`](@ref). `Array(tensor)` copies, [`view_array`](@ref) shares.
""" Tensor

shape_of(dims) = Int64[dims...]

"""    empty_tensor(Float32, 2, 3; device = "cpu")

Elements that are not initialised."""
function empty_tensor(::Type{T}, dims::Integer...; device = CPU) where {T}
    shape = shape_of(dims)
    return made(Tensor, out -> LibAccel.accel_tensor_empty(shape, length(shape), dtype_code(T), Ref(as_device(device)), out))
end
Tensor(::UndefInitializer, T::Type, dims::Integer...; device = CPU) = empty_tensor(T, dims...; device = device)

"""    full(number, dims...; dtype = Float32, device = "cpu")

All elements equal."""
function full(number::Real, dims::Integer...; dtype = Float32, device = CPU)
    shape = shape_of(dims)
    return made(Tensor, out -> LibAccel.accel_tensor_full(shape, length(shape), number, dtype_code(dtype), Ref(as_device(device)), out))
end
"""    zeros(Float32, dims...; device = "cpu"): a tensor; it is called as `Accel.zeros`"""
zeros(T::Type, dims::Integer...; device = CPU) = full(0, dims...; dtype = T, device = device)
"""    ones(Float32, dims...; device = "cpu"): a tensor; it is called as `Accel.ones`"""
ones(T::Type, dims::Integer...; device = CPU) = full(1, dims...; dtype = T, device = device)

"""    randn(Float32, dims...; device = "cpu"): called as `Accel.randn`

Draws from the standard normal distribution, with the library's default generator."""
function randn(T::Type, dims::Integer...; device = CPU)
    shape = shape_of(dims)
    return made(Tensor, out -> LibAccel.accel_tensor_randn(shape, length(shape), dtype_code(T), Ref(as_device(device)), out))
end
"""    rand(0:9, dims...): called as `Accel.rand`

Integers of a range, as Int64."""
function rand(range::UnitRange{<:Integer}, dims::Integer...)
    shape = shape_of(dims)
    return made(Tensor, out -> LibAccel.accel_tensor_randint(first(range), last(range) + 1, shape, length(shape), out))
end

function Base.size(tensor::Tensor)
    sizes = output(out -> LibAccel.accel_tensor_shape(tensor, out), Ptr{Int64})
    return GC.@preserve tensor ntuple(i -> unsafe_load(sizes, i), ndims(tensor))
end
Base.size(tensor::Tensor, dim::Integer) = dim > ndims(tensor) ? 1 : size(tensor)[dim]
function Base.strides(tensor::Tensor)
    distances = output(out -> LibAccel.accel_tensor_strides(tensor, out), Ptr{Int64})
    return GC.@preserve tensor ntuple(i -> unsafe_load(distances, i), ndims(tensor))
end
Base.eltype(tensor::Tensor) = element_type(output(out -> LibAccel.accel_tensor_dtype(tensor, out), Int32))
Base.axes(tensor::Tensor) = map(Base.OneTo, size(tensor))
Base.axes(tensor::Tensor, dim::Integer) = Base.OneTo(size(tensor, dim))

"""The number in a tensor of one element; of a number, itself."""
item(number::Number) = number
function item(tensor::Tensor)
    type = eltype(tensor)
    type == Bool && return output(out -> LibAccel.accel_tensor_item_int(tensor, out), Int64) != 0
    type <: Integer && return output(out -> LibAccel.accel_tensor_item_int(tensor, out), Int64) % type
    return output(out -> LibAccel.accel_tensor_item(tensor, out), Float64)
end

"""The gradient of a leaf, or nothing."""
function gradient(tensor::Tensor)
    pointer = output(out -> LibAccel.accel_tensor_grad(tensor, out), Ptr{LibAccel.accel_tensor_t})
    return pointer == C_NULL ? nothing : Tensor(pointer)
end
"""    backward(tensor; options...)

Back-propagates without any scaling; in training use `backward(state, loss)`, whose options these are."""
backward(tensor::Tensor; options...) =
    (backward_options(given -> LibAccel.accel_tensor_backward(tensor, given); options...); nothing)
function backward_options(use::Function; inputs = nothing, options...)
    isempty(options) && inputs === nothing && return use(C_NULL)
    made_with(value) = with_options(use, LibAccel.accel_backward_options_t; inputs = value, options...)
    return inputs === nothing ? made_with(C_NULL) : lend(made_with, inputs)
end

"""    to(tensor, Float16), to(tensor, "cuda:0"), to(tensor, Float16, "cuda:0")

A tensor that shares the memory when nothing changes."""
to(tensor::Tensor, dtype::Type; non_blocking = false) = to(tensor, dtype, device(tensor); non_blocking = non_blocking)
to(tensor::Tensor, place::Union{Device,AbstractString}; non_blocking = false) =
    made(Tensor, out -> LibAccel.accel_tensor_to(tensor, LibAccel.ACCEL_UNSET, Ref(as_device(place)), non_blocking, out))
to(tensor::Tensor, dtype::Type, place; non_blocking = false) =
    made(Tensor, out -> LibAccel.accel_tensor_to(tensor, dtype_code(dtype), Ref(as_device(place)), non_blocking, out))

function describe(io::IO, tensor::Tensor)
    print(io, "Tensor(", join(size(tensor), "x"), ndims(tensor) == 0 ? "0-d " : " ", unsafe_string(LibAccel.accel_dtype_name(
        output(out -> LibAccel.accel_tensor_dtype(tensor, out), Int32))))
    place = device(tensor)
    getfield(place, :type) == LibAccel.ACCEL_DEVICE_CPU || print(io, " on ", device_name(place))
    requires_grad(tensor) && print(io, ", requires grad")
    print(io, ")")
end

function Base.show(io::IO, ::MIME"text/plain", tensor::Tensor)
    show(io, tensor)
    isopen(tensor) && getfield(device(tensor), :type) != LibAccel.ACCEL_DEVICE_META || return nothing
    array = Array(tensor)
    print(io, ":\n")
    shown = IOContext(io, :limit => get(io, :limit, true), :compact => get(io, :compact, true), :typeinfo => eltype(array))
    ndims(array) == 0 ? print(io, " ", array[]) : Base.print_array(shown, array)
end
