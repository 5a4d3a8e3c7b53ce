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
Base.any(a::Tensor) = item(@op("aten::any")(a)) != 0
Base.all(a::Tensor) = item(@op("aten::all")(a)) != 0

floating(a::Tensor) = eltype(a) <: Integer ? to(a, Float64) : a
Statistics.mean(a::Tensor; dims = :) = dims isa Colon ? @op("aten::mean")(floating(a))::Tensor :
    @op("aten::mean.dim")(floating(a), zero_based(dims), true)::Tensor
Statistics.var(a::Tensor; dims = :, corrected::Bool = true) =
    aten.var(floating(a), dims isa Colon ? nothing : zero_based(dims); correction = Int(corrected), keepdim = !(dims isa Colon))
Statistics.std(a::Tensor; dims = :, corrected::Bool = true) =
    aten.std(floating(a), dims isa Colon ? nothing : zero_based(dims); correction = Int(corrected), keepdim = !(dims isa Colon))
