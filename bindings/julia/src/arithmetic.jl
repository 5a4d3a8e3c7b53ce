# Julia's own operators and functions on tensors. Shapes are broadcast as LibTorch does it.

# Operators are found when they are first used: the library is not there while Julia compiles the package. It is one pointer, so
# that threads see all of it or nothing.
macro op(full_name)
    cache = Ref{Any}(nothing)
    quote
        found = $cache[]
        (found === nothing ? ($cache[] = Op($full_name)) : found)::Op
    end
end

for (symbol, name) in ((:+, "add"), (:-, "sub"))
    @eval Base.$symbol(a::Tensor, b::Tensor) = @op($("aten::$name.Tensor"))(a, b)::Tensor
end
for (symbol, name) in ((:+, "add"), (:-, "sub"), (:*, "mul"), (:/, "div"))
    @eval Base.$symbol(a::Tensor, b::Real) = @op($("aten::$name.Scalar"))(a, b)::Tensor
    @eval Base.broadcasted(::typeof($symbol), a::Tensor, b::Tensor) = @op($("aten::$name.Tensor"))(a, b)::Tensor
    @eval Base.broadcasted(::typeof($symbol), a::Tensor, b::Real) = $symbol(a, b)
    @eval Base.broadcasted(::typeof($symbol), a::Real, b::Tensor) = $symbol(a, b)
end
"""The product of matrices, and of stacks of them; `a .* b` is that of elements."""
Base.:*(a::Tensor, b::Tensor) = @op("aten::matmul")(a, b)::Tensor
Base.:+(a::Real, b::Tensor) = b + a
Base.:*(a::Real, b::Tensor) = b * a
Base.:-(a::Real, b::Tensor) = @op("aten::rsub.Scalar")(b, a)::Tensor
Base.:/(a::Real, b::Tensor) = @op("aten::mul.Scalar")(@op("aten::reciprocal")(b), a)::Tensor
Base.:^(a::Tensor, b::Real) = @op("aten::pow.Tensor_Scalar")(a, b)::Tensor
Base.:^(a::Tensor, b::Integer) = @op("aten::pow.Tensor_Scalar")(a, b)::Tensor
Base.:-(a::Tensor) = @op("aten::neg")(a)::Tensor
Base.broadcasted(::typeof(-), a::Tensor) = -a
Base.broadcasted(::typeof(^), a::Tensor, b::Real) = a^b
Base.broadcasted(::typeof(Base.literal_pow), ::typeof(^), a::Tensor, ::Val{b}) where {b} = a^b
# An array in its place would leave autograd without a word.
Base.broadcastable(::Tensor) = refuse("this function has no dotted form for tensors; use one of LibTorch's, aten.NAME(tensor), ",
    "or the array: view_array(tensor)")

for (symbol, name) in ((:sum, "sum"), (:prod, "prod"), (:maximum, "max"), (:minimum, "min"))
    @eval Base.$symbol(a::Tensor) = @op($("aten::$name"))(a)::Tensor
end
# Of elements, with the dot and without.
for symbol in (:exp, :log, :sqrt, :abs, :sin, :cos, :tanh)
    @eval Base.$symbol(a::Tensor) = @op($("aten::$symbol"))(a)::Tensor
    @eval Base.broadcasted(::typeof($symbol), a::Tensor) = $symbol(a)
end

for (symbol, name) in ((:(==), "eq"), (:<, "lt"), (:<=, "le"), (:>, "gt"), (:>=, "ge"))
    @eval Base.broadcasted(::typeof($symbol), a::Tensor, b::Tensor) = @op($("aten::$name.Tensor"))(a, b)::Tensor
    @eval Base.broadcasted(::typeof($symbol), a::Tensor, b::Real) = @op($("aten::$name.Scalar"))(a, b)::Tensor
end
"""    transpose(tensor): the last two dimensions change places."""
Base.transpose(a::Tensor) = @op("aten::transpose.int")(a, -2, -1)::Tensor
Base.permutedims(a::Tensor, order) = @op("aten::permute")(a, Int64[dim - 1 for dim in order])::Tensor
Base.reshape(a::Tensor, dims::Integer...) = @op("aten::reshape")(a, Int64[dims...])::Tensor

aten_select(a::Tensor, dim, index) = @op("aten::select.int")(a, dim, index)::Tensor
aten_slice(a::Tensor, dim, first, last) = @op("aten::slice.Tensor")(a, dim, first, last)::Tensor

"""
    cross_entropy(logits, labels)

The mean over class scores [..., classes] and Int64 labels [...]; classes count from 0, and -100 is left out."""
cross_entropy(logits::Tensor, labels::Tensor) = made(Tensor, out -> LibAccel.accel_cross_entropy(logits, labels, out))
