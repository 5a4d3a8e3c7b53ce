# Memory that tensors and Julia's arrays share.

function Tensor(array::Array{T,N}; reversed::Bool = false) where {T,N}
    isempty(array) && return empty_tensor(T, (reversed ? reverse(size(array)) : size(array))...)
    shape = Int64[size(array)...]
    distances = Int64[strides(array)...]
    if reversed
        reverse!(shape)
        reverse!(distances)
    end
    dtype = dtype_code(T)
    block = keep(pinned(array))
    return made(Tensor, out -> LibAccel.accel_tensor_from_blob(array, shape, N, distances, dtype, CPU, block, destroy(), out))
end
Tensor(array::AbstractArray; reversed::Bool = false) = Tensor(Array(array); reversed = reversed)
"""A tensor of no dimensions."""
Tensor(number::Union{Real,Complex}) = Tensor(fill(number))
Base.convert(::Type{Tensor}, array::Array) = Tensor(array)

# What owns the memory of an array. Arrays can grow, and leave their memory: where that is an object of its own, that is kept;
# before Julia 1.11 an array whose memory another one shares refuses to grow.
@static if VERSION >= v"1.11-"
    pinned(array::Array) = getfield(getfield(array, :ref), :mem)
else
    pinned(array::Array) = array
    pinned(array::Vector) = (array, reshape(array, :, 1))
end
memory_owner(array::Array) = VERSION >= v"1.11-" ? pinned(array) : array

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
    data = Ptr{type}(output(out -> LibAccel.accel_tensor_data(tensor, out), Ptr{Cvoid}))
    array = unsafe_wrap(Array, data, sizes[order])
    owner = detach(tensor)
    finalizer(_ -> close(owner), memory_owner(array))
    return issorted(order) ? array : PermutedDimsArray(array, invperm(order))
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
Base.collect(tensor::Tensor) = Array(tensor)
Base.Array{T}(tensor::Tensor) where {T} = convert(Array{T}, Array(tensor))

# Views: t[2, :], t[1:3, end], with Julia's indices.

function Base.getindex(tensor::Tensor, indices::Union{Integer,Colon,AbstractUnitRange{<:Integer}}...)
    length(indices) == ndims(tensor) || throw(DimensionMismatch("$(length(indices)) indices for a tensor of $(ndims(tensor)) dimensions"))
    all(inside(tensor, place, index) for (place, index) in enumerate(indices)) || throw(BoundsError(tensor, indices))
    result, dim = tensor, 0
    for index in indices
        if index isa Integer
            result = aten_select(result, dim, index - 1)
        else
            index isa Colon || (result = aten_slice(result, dim, first(index) - 1, last(index)))
            dim += 1
        end
    end
    return result
end
inside(::Tensor, place, ::Colon) = true
inside(tensor::Tensor, place, index::Integer) = index in axes(tensor, place)
inside(tensor::Tensor, place, index::AbstractUnitRange) = isempty(index) || (first(index) >= 1 && last(index) <= size(tensor, place))

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
