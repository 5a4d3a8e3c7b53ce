# SPDX-License-Identifier: Apache-2.0
# Sums and their like: over all elements a tensor without dimensions, through which autograd goes; with `dims` these have size 1.
using Statistics: Statistics

zero_based(dims) = Int64[dim - 1 for dim in Tuple(dims)]
zero_based(dim::Integer) = Int64[dim - 1]

for (symbol, whole, part) in ((:sum, "sum", "sum.dim_IntList"), (:maximum, "max", "amax"), (:minimum, "min", "amin"))
    @eval Base.$symbol(a::Tensor; dims = :) = dims isa Colon ? @op($("aten::$whole"))(a)::Tensor :
        @op($("aten::$part"))(a, zero_based(dims), true)::Tensor
end
Base.prod(a::Tensor; dims = :) = dims isa Colon ? @op("aten::prod")(a)::Tensor :
    foldl((reduced, dim) -> @op("aten::prod.dim_int")(reduced, dim - 1, true)::Tensor, dims; init = a)
# A function is applied to all elements at once, as with a dot.
for symbol in (:sum, :maximum, :minimum, :prod)
    @eval Base.$symbol(f, a::Tensor; dims = :) = $symbol(f.(a); dims = dims)
end
Statistics.mean(f, a::Tensor; dims = :) = Statistics.mean(f.(a); dims = dims)
for symbol in (:any, :all)
    @eval Base.$symbol(a::Tensor; dims = :) = dims isa Colon ? item(@op($("aten::$symbol"))(a)) != 0 :
        foldl((reduced, dim) -> @op($("aten::$symbol.dim"))(reduced, dim - 1, true)::Tensor, dims; init = a)
end
for symbol in (:cumsum, :cumprod)
    @eval Base.$symbol(a::Tensor; dims::Integer = every_dim(a)) = @op($("aten::$symbol"))(a, dims - 1)::Tensor
end
# Positions and order are of a copy; autograd has no part in them.
for symbol in (:argmax, :argmin, :findmax, :findmin, :findall, :findfirst, :findlast, :sortperm, :extrema, :count)
    @eval Base.$symbol(a::Tensor; options...) = $symbol(Array(a); options...)
end
for symbol in (:findall, :findfirst, :findlast, :count)
    @eval Base.$symbol(f::Function, a::Tensor; options...) = $symbol(f, Array(a); options...)
end
"""    map(function, tensors...): an array, for any function of Julia; a dot is for tensors"""
Base.map(f, a::Tensor, more::Tensor...) = map(f, Array(a), map(Array, more)...)

floating(a::Tensor) = eltype(a) <: Integer ? to(a, Float64) : a
Statistics.mean(a::Tensor; dims = :) = dims isa Colon ? @op("aten::mean")(floating(a))::Tensor :
    @op("aten::mean.dim")(floating(a), zero_based(dims), true)::Tensor
Statistics.var(a::Tensor; dims = :, corrected::Bool = true) =
    aten.var(floating(a), dims isa Colon ? nothing : zero_based(dims); correction = Int(corrected), keepdim = !(dims isa Colon))
Statistics.std(a::Tensor; dims = :, corrected::Bool = true) =
    aten.std(floating(a), dims isa Colon ? nothing : zero_based(dims); correction = Int(corrected), keepdim = !(dims isa Colon))
