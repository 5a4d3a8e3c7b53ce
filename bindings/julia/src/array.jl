# SPDX-License-Identifier: Apache-2.0
# Arrays of Julia over the memory of tensors.

"""The dimensions of a tensor from the fastest in memory to the slowest, when there are no gaps; else nothing."""
function memory_order(sizes, distances)
    order = sort(collect(1:length(sizes)); by = dim -> (distances[dim], sizes[dim]))
    expected = 1
    for dim in order
        sizes[dim] == 1 && continue
        distances[dim] == expected || return nothing
        expected *= sizes[dim]
    end
    return order
end

"""
    view_array(tensor)

The elements of a CPU tensor as an array that shares its memory, with the same indices: an `Array` when the tensor is
column-major, as those of Julia's own arrays are, and a `PermutedDimsArray` of one when it is row-major. It keeps the tensor alive.
A tensor with gaps is refused: `contiguous(tensor)` copies it.
"""
function view_array(tensor::Tensor)
    place = device(tensor)
    getfield(place, :type) == LibAccel.ACCEL_DEVICE_CPU || refuse("the tensor is on ", device_name(place), "; expected one on cpu")
    sizes, distances = size(tensor), strides(tensor)
    type = eltype(tensor)
    length(tensor) == 0 && return Array{type}(undef, sizes)
    order = memory_order(sizes, distances)
    order === nothing && refuse("the tensor has gaps, its strides are ", distances, " for ", sizes, "; use contiguous(tensor)")
    array = wrapped(tensor, type, sizes[order])
    return issorted(order) ? array : PermutedDimsArray(array, invperm(order))
end

function wrapped(tensor, type, sizes)
    data = Ptr{type}(output(out -> LibAccel.accel_tensor_data(tensor, out), Ptr{Cvoid}))
    array = unsafe_wrap(Array, data, sizes)
    owner = detach(tensor)
    # The reference itself: what only a finalizer refers to is collected before the finalizer runs.
    reference = LibAccel.accel_tensor_retain(owner)
    close(owner)
    finalizer(_ -> give_back(reference), memory_owner(array))
    return array
end
give_back(reference::Ptr{LibAccel.accel_tensor_t}) = (ENDS_IN_A_CALL[] || LibAccel.accel_tensor_release(reference); nothing)

"""The array of which `Tensor(array; reversed = true)` would make this tensor; in its memory where that is on the CPU and has no gaps."""
function reversed_array(tensor::Tensor)
    near = getfield(device(tensor), :type) == LibAccel.ACCEL_DEVICE_CPU ? tensor : to(tensor, CPU)
    sizes, type = reverse(size(near)), eltype(near)
    return any(iszero, sizes) ? Array{type}(undef, sizes) : wrapped(iscontiguous(near) ? near : contiguous(near), type, sizes)
end

"""A copy of the elements."""
function Base.Array(tensor::Tensor)
    near = getfield(device(tensor), :type) == LibAccel.ACCEL_DEVICE_CPU ? detach(tensor) : to(detach(tensor), CPU)
    dense = memory_order(size(near), strides(near)) === nothing ? contiguous(near) : near
    viewed = view_array(dense)
    copied = copyto!(Array{eltype(viewed)}(undef, size(viewed)), viewed)
    dense === near || close(dense)
    near === tensor || close(near)
    return copied
end
Base.Array{T}(tensor::Tensor) where {T} = convert(Array{T}, Array(tensor))
Base.Vector(tensor::Tensor) = Array(tensor)::Vector
Base.Matrix(tensor::Tensor) = Array(tensor)::Matrix
Base.convert(::Type{T}, tensor::Tensor) where {T<:Array} = convert(T, Array(tensor))

# DLPack: how other packages share arrays.

"""    Tensor(dlpack; versioned = true)

Takes the pointer of a tensor of DLPack without a copy: a `DLManagedTensorVersioned`, or with `versioned = false` what was before
version 1. Any thread may call its deleter."""
Tensor(dlpack::Ptr{Cvoid}; versioned::Bool = true) = versioned ? made(Tensor, out -> LibAccel.accel_tensor_from_dlpack(dlpack, out)) :
    made(Tensor, out -> LibAccel.accel_tensor_from_dlpack_unversioned(dlpack, out))
"""    dlpack(tensor; versioned = true)

Lends a tensor without a copy; what takes the pointer calls its deleter."""
dlpack(tensor::Tensor; versioned::Bool = true) = Ptr{Cvoid}(versioned ?
    output(out -> LibAccel.accel_tensor_to_dlpack(tensor, out), Ptr{LibAccel.DLManagedTensorVersioned}) :
    output(out -> LibAccel.accel_tensor_to_dlpack_unversioned(tensor, out), Ptr{LibAccel.DLManagedTensor}))
