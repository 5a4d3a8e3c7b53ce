# SPDX-License-Identifier: Apache-2.0
# Elements and parts of tensors, with Julia's indices: t[2, 3] is a number, t[1:2, :] and t[t .> 0] copies, and view(t, 1:2, :)
# shares. Views of one element are tensors, and autograd goes through them, as through copies.

const Part = Union{Integer,Colon,AbstractRange{<:Integer}}
const Parts = Union{Part,AbstractVector{<:Integer}}
const Mask = Union{Tensor,AbstractArray{Bool}}
const Indices = Union{Mask,Parts}

Base.firstindex(::Tensor) = 1
Base.lastindex(tensor::Tensor) = length(tensor)
Base.firstindex(::Tensor, dim::Integer) = 1
Base.lastindex(tensor::Tensor, dim::Integer) = size(tensor, dim)
Base.eachindex(tensor::Tensor) = Base.OneTo(length(tensor))
Base.CartesianIndices(tensor::Tensor) = CartesianIndices(size(tensor))
Base.LinearIndices(tensor::Tensor) = LinearIndices(size(tensor))
Base.keys(tensor::Tensor) = ndims(tensor) == 1 ? eachindex(tensor) : CartesianIndices(tensor)

"""    selectdim(tensor, dim, index), eachslice(tensor; dims), eachrow(matrix), eachcol(matrix): views"""
Base.selectdim(tensor::Tensor, dim::Integer, index) = view(tensor, (other == dim ? index : Colon() for other in 1:ndims(tensor))...)
Base.eachslice(tensor::Tensor; dims) = (selectdim(tensor, first(dims), index) for index in axes(tensor, first(dims)))
Base.eachrow(tensor::Tensor) = eachslice(tensor; dims = 1)
Base.eachcol(tensor::Tensor) = eachslice(tensor; dims = 2)

inside(::Tensor, place, ::Colon) = true
inside(tensor::Tensor, place, index::Integer) = 1 <= index <= size(tensor, place)
inside(tensor::Tensor, place, index::AbstractVector{Bool}) = length(index) == size(tensor, place)
inside(tensor::Tensor, place, index::AbstractVector) = all(each -> inside(tensor, place, each), index)
inside(tensor::Tensor, place, index::AbstractRange) = isempty(index) || (minimum(index) >= 1 && maximum(index) <= size(tensor, place))

function check_indices(tensor, indices)
    length(indices) == ndims(tensor) ||
        throw(DimensionMismatch("$(length(indices)) indices for a tensor of $(ndims(tensor)) dimensions; expected as many, or 1"))
    all(inside(tensor, place, index) for (place, index) in enumerate(indices)) || throw(BoundsError(tensor, indices))
    return nothing
end

"""    view(tensor, indices...): the same memory; numbers, ranges and `:`"""
function Base.view(tensor::Tensor, indices::Part...)
    check_indices(tensor, indices)
    result, dim = tensor, 0
    for index in indices
        if index isa Integer
            result = @op("aten::select.int")(result, dim, index - 1)::Tensor
        else
            index isa Colon || (result = part(result, dim, index))
            dim += 1
        end
    end
    return result === tensor ? @op("aten::alias")(tensor)::Tensor : result
end
part(tensor, dim, range) = step(range) > 0 ?
    @op("aten::slice.Tensor")(tensor, dim, first(range) - 1, isempty(range) ? first(range) - 1 : last(range), step(range))::Tensor :
    refuse("a view has no step of ", step(range), "; expected one above 0, or a copy: tensor[collect(range)]")
Base.dotview(tensor::Tensor, indices::Part...) = view(tensor, indices...)
Base.view(tensor::Tensor, index::CartesianIndex) = view(tensor, Tuple(index)...)

Base.getindex(tensor::Tensor) = item(tensor)
Base.getindex(tensor::Tensor, index::CartesianIndex) = tensor[Tuple(index)...]
Base.getindex(tensor::Tensor, index::Integer) = ndims(tensor) == 1 ? item(view(tensor, index)) : tensor[place_of(tensor, index)]
Base.getindex(tensor::Tensor, indices::Integer...) = item(view(tensor, indices...))
Base.getindex(tensor::Tensor, mask::AbstractVector{Bool}) = copied(ndims(tensor) == 1 ? tensor : vec(tensor), (mask,))
Base.getindex(tensor::Tensor, index::Parts) = copied(ndims(tensor) == 1 ? tensor : vec(tensor), (index,))
Base.getindex(tensor::Tensor, indices::Parts...) = copied(tensor, indices)

"""The place of the n-th element, counted as Julia does: the first index runs fastest."""
function place_of(tensor, number)
    1 <= number <= length(tensor) || throw(BoundsError(tensor, number))
    return CartesianIndices(size(tensor))[number]
end

function copied(tensor, indices)
    check_indices(tensor, indices)
    result, dim, shares = tensor, 0, true
    for index in indices
        if index isa Integer
            result = @op("aten::select.int")(result, dim, index - 1)::Tensor
            continue
        elseif index isa AbstractRange && step(index) > 0
            result = part(result, dim, index)
        elseif index isa AbstractVector
            numbers = eltype(index) == Bool ? findall(index) : index
            result = @op("aten::index_select")(result, dim, to(Tensor(Int64[number - 1 for number in numbers]), device(tensor)))::Tensor
            shares = false
        end
        dim += 1
    end
    return shares ? copy(result) : result
end

Base.setindex!(tensor::Tensor, number::Number) = fill!(tensor, number)
Base.setindex!(tensor::Tensor, number::Number, indices::Integer...) = (fill!(element(tensor, indices...), number); tensor)
Base.setindex!(tensor::Tensor, number::Number, index::CartesianIndex) = (fill!(view(tensor, index), number); tensor)
Base.setindex!(::Tensor, number::Number, ::Indices...) = refuse(number, " for several elements; use tensor[...] .= ", number)
element(tensor, indices...) = view(tensor, indices...)
element(tensor, index::Integer) = ndims(tensor) == 1 ? view(tensor, index) : view(tensor, place_of(tensor, index))
function Base.setindex!(tensor::Tensor, source::Union{Tensor,AbstractArray}, indices::Part...)
    all(index -> !(index isa AbstractRange) || step(index) > 0, indices) || return write_elements!(IndexedElements(tensor, indices), source)
    place = ndims(tensor) != 1 && indices == (:,) ? tensor : view(tensor, indices...)
    from = as_tensor(source)
    indices == (:,) && length(from) == length(place) && (from = reshape(from, size(place)...))
    sizes = filter(!=(1), size(place))
    sizes == filter(!=(1), size(from)) ||
        throw(DimensionMismatch("$(size(from)) elements for $(size(place)) places"))
    copyto!(place, size(from) == size(place) ? from : reshape(from, size(place)...))
    return tensor
end

Base.fill!(tensor::Tensor, number::Real) = (@op("aten::fill_.Scalar")(tensor, number); tensor)
Base.fill!(tensor::Tensor, number::Number) = (@op("aten::fill_.Tensor")(tensor, Tensor(number)); tensor)

# Elements one after another, the first index fastest: of a copy.
Base.iterate(tensor::Tensor) = following(Array(tensor))
Base.iterate(::Tensor, (elements, place)) = following(elements, place)
function following(elements, place...)
    step = iterate(elements, place...)
    return step === nothing ? nothing : (step[1], (elements, step[2]))
end
Base.collect(tensor::Tensor) = Array(tensor)
Base.IteratorEltype(::Type{Tensor}) = Base.EltypeUnknown()

"""    copyto!(array, tensor), copyto!(tensor, array): all elements, of the same sizes"""
Base.copyto!(tensor::Tensor, source::AbstractArray) = copyto!(tensor, Tensor(source))
function Base.copyto!(array::AbstractArray, tensor::Tensor)
    size(array) == size(tensor) || throw(DimensionMismatch("a tensor of $(size(tensor)) for an array of $(size(array))"))
    return copyto!(array, Array(tensor))
end
