# SPDX-License-Identifier: Apache-2.0
# Shapes as Julia has them: the elements of a tensor are in the order of an array's, its first index fastest.

"""Two tensors are equal when their sizes and all elements are."""
Base.:(==)(a::Tensor, b::Tensor) = same_size(a, b) && item(@op("aten::all")(@op("aten::eq.Tensor")(a, b))) != 0
Base.isapprox(a::Tensor, b::Tensor; options...) = isapprox(Array(a), Array(b); options...)
Base.isapprox(a::Tensor, b::AbstractArray; options...) = isapprox(Array(a), b; options...)
Base.isapprox(a::AbstractArray, b::Tensor; options...) = isapprox(a, Array(b); options...)
Base.zero(a::Tensor) = @op("aten::zeros_like")(a)::Tensor
Base.hash(tensor::Tensor, seed::UInt) = hash(Array(tensor), seed)

function same_size(a::Tensor, b::Tensor)
    count = ndims(a)
    count == ndims(b) || return false
    one, other = sizes_at(a), sizes_at(b)
    return GC.@preserve a b all(i -> unsafe_load(one, i) == unsafe_load(other, i), 1:count)
end
sizes_at(tensor) = output(out -> LibAccel.accel_tensor_shape(tensor, out), Ptr{Int64})

Base.isempty(tensor::Tensor) = length(tensor) == 0
Base.similar(tensor::Tensor) = similar(tensor, eltype(tensor))
Base.similar(tensor::Tensor, dims::Integer...) = similar(tensor, eltype(tensor), dims...)
Base.similar(tensor::Tensor, T::Type) = similar(tensor, T, size(tensor)...)
Base.similar(tensor::Tensor, T::Type, dims::Integer...) = empty_tensor(T, dims...; device = device(tensor))
Base.similar(tensor::Tensor, T::Type, dims::Dims) = similar(tensor, T, dims...)
Base.similar(tensor::Tensor, dims::Dims) = similar(tensor, dims...)

permuted(a::Tensor, order) = @op("aten::permute")(a, Int64[dim - 1 for dim in order])::Tensor
backwards(a::Tensor) = ndims(a) < 2 ? a : permuted(a, ndims(a):-1:1)

"""    permutedims(tensor, order): a copy; PermutedDimsArray(tensor, order) shares"""
Base.permutedims(a::Tensor, order) = copy(permuted(a, order))
Base.permutedims(a::Tensor) = copy(transpose(a))
Base.PermutedDimsArray(a::Tensor, order) = permuted(a, order)

"""    reshape(tensor, dims...)

Elements stay in their order, the first index fastest, one dimension may be `:`. A tensor that shares the memory where its layout allows,
else a copy;
`aten.reshape` has the last index fastest."""
function Base.reshape(a::Tensor, dims::Union{Integer,Colon}...)
    count(==(:), dims) <= 1 || throw(DimensionMismatch("reshape to $dims; expected at most one :"))
    sizes = Int64[dim isa Colon ? -1 : dim for dim in reverse(dims)]
    known = prod(Int[size for size in sizes if size >= 0])
    (-1 in sizes ? known > 0 && length(a) % known == 0 : known == length(a)) ||
        throw(DimensionMismatch("a tensor of $(size(a)) has $(length(a)) elements; expected as many as $dims"))
    return backwards(@op("aten::reshape")(backwards(a), sizes)::Tensor)
end
Base.reshape(a::Tensor, dims::Tuple{Vararg{Union{Integer,Colon}}}) = reshape(a, dims...)
Base.vec(a::Tensor) = reshape(a, :)
function Base.dropdims(a::Tensor; dims)
    all(dim -> size(a, dim) == 1, dims) || throw(ArgumentError("dropped dims must all be size 1, got $(size(a))"))
    return reshape(a, (size(a, dim) for dim in 1:ndims(a) if !(dim in dims))...)
end

"""    transpose(tensor), tensor': of a matrix, or a vector as a row; the same memory"""
function Base.transpose(a::Tensor)
    ndims(a) <= 2 || refuse("transpose of a tensor of ", ndims(a), " dimensions; expected 1 or 2, or permutedims(tensor, order)")
    return ndims(a) == 1 ? @op("aten::unsqueeze")(a, 0)::Tensor : @op("aten::t")(a)::Tensor
end
Base.adjoint(a::Tensor) = eltype(a) <: Complex ? @op("aten::conj_physical")(transpose(a))::Tensor : transpose(a)

const Piece = Union{Tensor,AbstractArray,Number}
"""    cat(tensors...; dims), vcat, hcat: arrays and numbers may be among them, where a tensor is the first or the second"""
Base.cat(first::Tensor, rest::Piece...; dims) = concatenated((first, rest...), dims)
Base.cat(first::Union{AbstractArray,Number}, second::Tensor, rest::Piece...; dims) = concatenated((first, second, rest...), dims)
concatenated(pieces, ::Val{dim}) where {dim} = concatenated(pieces, dim)
function concatenated(pieces, dim::Integer)
    tensors = map(as_tensor, pieces)
    count = max(dim, maximum(ndims, tensors))
    return @op("aten::cat")(Any[trailing(tensor, count) for tensor in tensors], dim - 1)::Tensor
end
trailing(a::Tensor, count) = (for _ in ndims(a)+1:count; a = @op("aten::unsqueeze")(a, -1)::Tensor; end; a)
for (symbol, dim) in ((:vcat, 1), (:hcat, 2))
    @eval Base.$symbol(first::Tensor, rest::Piece...) = concatenated((first, rest...), $dim)
    @eval Base.$symbol(first::Union{AbstractArray,Number}, second::Tensor, rest::Piece...) = concatenated((first, second, rest...), $dim)
end
Base.hvcat(counts::Tuple{Vararg{Int}}, first::Tensor, rest::Piece...) = in_rows(counts, (first, rest...))
Base.hvcat(counts::Tuple{Vararg{Int}}, first::Union{AbstractArray,Number}, second::Tensor, rest::Piece...) =
    in_rows(counts, (first, second, rest...))
function in_rows(counts, given)
    pieces, ends = map(as_tensor, given), cumsum(collect(counts))
    return vcat((hcat(pieces[last-count+1:last]...) for (count, last) in zip(counts, ends))...)
end

"""    repeat(tensor, counts...), repeat(tensor; inner = counts, outer = counts): a copy"""
Base.repeat(a::Tensor, counts::Integer...) = repeat(a; outer = counts)
function Base.repeat(a::Tensor; inner = (), outer = ())
    result = trailing(a, max(ndims(a), length(inner), length(outer)))
    for (dim, count) in enumerate(inner)
        result = @op("aten::repeat_interleave.self_int")(result, count, dim - 1)::Tensor
    end
    return @op("aten::repeat")(result, Int64[dim <= length(outer) ? outer[dim] : 1 for dim in 1:ndims(result)])::Tensor
end
every_dim(a) = ndims(a) == 1 ? 1 : refuse("a tensor of ", ndims(a), " dimensions; expected dims = of which of them")
Base.reverse(a::Tensor; dims = every_dim(a)) = @op("aten::flip")(a, zero_based(dims))::Tensor
Base.sort(a::Tensor; dims = every_dim(a), rev::Bool = false) = aten.sort(a, dims - 1, rev)[1]
