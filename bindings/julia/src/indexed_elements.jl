# SPDX-License-Identifier: Apache-2.0
# Elements that have no view, because they lie anywhere: by a mask, by numbers, or backwards.

"""Elements of a tensor that are written: `tensor[mask] .= 0`."""
struct IndexedElements
    tensor::Tensor
    indices::Tuple
end

function mask_of(tensor, given)
    mask = as_tensor(given isa BitArray ? Array(given) : given)
    eltype(mask) == Bool || refuse("a tensor of ", eltype(mask), " as index; expected one of Bool, or a vector of integers")
    size(mask) == size(tensor) || throw(DimensionMismatch("a mask of $(size(mask)) for a tensor of $(size(tensor))"))
    return to(mask, device(tensor))
end
# In the order of an array's elements.
masked_elements(tensor, mask) = @op("aten::masked_select")(backwards(tensor), backwards(mask_of(tensor, mask)))::Tensor

"""The numbers, from 0, of an index along a dimension."""
numbers_along(tensor, dim, ::Colon) = Int64[0:size(tensor, dim)-1;]
numbers_along(tensor, dim, index::Integer) = Int64[index-1]
numbers_along(tensor, dim, index::AbstractVector) = Int64[number - 1 for number in (eltype(index) == Bool ? findall(index) : index)]

function write_elements!(elements::IndexedElements, source)
    tensor, indices = elements.tensor, elements.indices
    if indices isa Tuple{Mask}
        mask = mask_of(tensor, indices[1])
        source isa Number && return (@op("aten::masked_fill_.Scalar")(tensor, mask, source); tensor)
        length(source) == count(mask) || throw(DimensionMismatch("$(length(source)) elements for $(count(mask)) places"))
        @op("aten::masked_scatter_")(backwards(tensor), backwards(mask), to(as_tensor(source), eltype(tensor), device(tensor)))
        return tensor
    end
    check_indices(tensor, indices)
    along = [numbers_along(tensor, dim, index) for (dim, index) in enumerate(indices)]
    given = Any[to(Tensor(reshape(numbers, ntuple(_ -> 1, dim - 1)..., :, ntuple(_ -> 1, length(along) - dim)...)), device(tensor))
                for (dim, numbers) in enumerate(along)]
    values = to(as_tensor(source), eltype(tensor), device(tensor))
    kept = Int[length(numbers) for (index, numbers) in zip(indices, along) if !(index isa Integer)]
    values = ndims(values) == 0 ? values : spread(values, kept, indices)
    @op("aten::index_put_")(tensor, given, values)
    return tensor
end
# Dimensions of size 1 where one number was given.
function spread(values, kept, indices)
    fits = ndims(values) <= length(kept) && all(dim -> size(values, dim) in (1, kept[dim]), 1:ndims(values))
    fits || throw(DimensionMismatch("$(size(values)) elements for $(Tuple(kept)) places"))
    sizes = Iterators.Stateful(1:length(kept))
    return reshape(values, (index isa Integer ? 1 : size(values, popfirst!(sizes)) for index in indices)...)
end
Base.materialize!(elements::IndexedElements, source::Union{Tensor,Number,AbstractArray}) = write_elements!(elements, source)
Base.materialize!(elements::IndexedElements, source::Broadcasted) = write_elements!(elements, Base.materialize(source))

Base.getindex(tensor::Tensor, mask::Mask) = masked_elements(tensor, mask)
function Base.setindex!(tensor::Tensor, source::Union{Tensor,AbstractArray}, indices::Indices...)
    if !(indices isa Tuple{Mask}) # without a dot nothing is repeated
        check_indices(tensor, indices)
        number = prod(length(numbers_along(tensor, dim, index)) for (dim, index) in enumerate(indices))
        number == length(source) || throw(DimensionMismatch("$(size(source)) elements for $number places"))
    end
    return write_elements!(IndexedElements(tensor, indices), source)
end
Base.dotview(tensor::Tensor, indices::Indices...) = IndexedElements(tensor, indices)
