# SPDX-License-Identifier: Apache-2.0
# Memory of other arrays that a tensor may share: by its pointer, or not at all.
using LinearAlgebra: Adjoint, Transpose

"""
    shared_memory(array)

The description that a tensor needs to share an array, `(pointer, strides, device, owner)`: the address of the first element, the distances of
the dimensions in elements, a [`Device`](@ref), and what keeps the memory alive; or `nothing` for an array that has no such memory.

Arrays of the CPU and strided views of them are known. For arrays on other devices add a method, for example in the package that
brings them together; this one was not run yet:

    Accel.shared_memory(array::CUDA.CuArray) = (pointer = UInt(pointer(array)), strides = strides(array),
        device = Device("cuda:0"), owner = array)
"""
shared_memory(array::AbstractArray) = lies_in_array(array) ? strided_memory(array) : nothing

# Wrappers of Julia's own that are strided where their parent is. Types of packages have methods of their own.
const Wrapper = Union{SubArray,PermutedDimsArray,Base.ReshapedArray,Base.ReinterpretArray,Adjoint{<:Real},Transpose{<:Real}}
lies_in_array(::Array) = true
lies_in_array(array::Wrapper) = lies_in_array(parent(array))
lies_in_array(::AbstractArray) = false

function strided_memory(array::AbstractArray{T}) where {T}
    owner = root(array)
    try
        return (pointer = UInt(Base.unsafe_convert(Ptr{T}, array)), strides = strides(array), device = CPU, owner = pinned(owner))
    catch problem
        problem isa Union{MethodError,ErrorException,ArgumentError} || rethrow()
        return nothing # a view by a list of numbers, for example
    end
end
root(array::Array) = array
root(array::AbstractArray) = root(parent(array))

# What owns the memory of an array. Arrays can grow, and leave their memory: where that is an object of its own, that is kept;
# before Julia 1.11 an array whose memory another one shares refuses to grow.
@static if VERSION >= v"1.11-"
    pinned(array::Array) = getfield(getfield(array, :ref), :mem)
else
    pinned(array::Array) = array
    pinned(array::Vector) = (array, reshape(array, :, 1))
end
memory_owner(array::Array) = VERSION >= v"1.11-" ? pinned(array) : array

function Tensor(array::AbstractArray{T,N}; reversed::Bool = false) where {T,N}
    dtype = dtype_code(T)
    isempty(array) && return empty_tensor(T, (reversed ? reverse(size(array)) : size(array))...)
    memory = shared_memory(array)
    memory === nothing && refuse("a ", typeof(array), " has no memory that a tensor could share; collect(x) makes an Array of it, or ",
        "add a method of Accel.shared_memory")
    shape = Int64[size(array)...]
    distances = Int64[memory.strides...]
    if reversed
        reverse!(shape)
        reverse!(distances)
    end
    all(>=(0), distances) || refuse("the strides are ", memory.strides, ", and a tensor has none below 0; use collect(x)")
    block = keep(memory.owner)
    return GC.@preserve array made(Tensor, out -> LibAccel.accel_tensor_from_blob(
        Ptr{Cvoid}(memory.pointer), shape, N, distances, dtype, Ref(as_device(memory.device)), block, destroy(), out))
end
# It has no memory, and cannot be written.
Tensor(range::AbstractRange; reversed::Bool = false) = Tensor(collect(range); reversed = reversed)
"""A tensor of no dimensions."""
Tensor(number::Union{Real,Complex}) = Tensor(fill(number))
Base.convert(::Type{Tensor}, array::AbstractArray) = Tensor(array)
