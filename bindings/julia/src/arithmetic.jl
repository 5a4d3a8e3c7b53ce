# SPDX-License-Identifier: Apache-2.0
# Julia's own operators on tensors, with the meaning that they have for arrays: what is done to each element has a dot.

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
    @eval function Base.$symbol(a::Tensor, b::Tensor)
        same_size(a, b) || throw(DimensionMismatch("$(size(a)) and $(size(b)); expected the same sizes, or a dot: a .$($(string(symbol))) b"))
        return @op($("aten::$name.Tensor"))(a, b)::Tensor
    end
end
Base.:-(a::Tensor) = @op("aten::neg")(a)::Tensor
Base.:+(a::Tensor) = a
for symbol in (:+, :-, :*, :(==))
    @eval Base.$symbol(a::Tensor, b::AbstractArray) = $symbol(a, Tensor(b))
    @eval Base.$symbol(a::AbstractArray, b::Tensor) = $symbol(Tensor(a), b)
end
Base.:*(a::Tensor, b::Real) = @op("aten::mul.Scalar")(a, b)::Tensor
Base.:*(a::Real, b::Tensor) = b * a
Base.:/(a::Tensor, b::Real) = @op("aten::div.Scalar")(a, b)::Tensor
"""The product of matrices, of a matrix and a vector, and of stacks of matrices (the last two dimensions); `a .* b` is that of elements."""
function Base.:*(a::Tensor, b::Tensor)
    ndims(a) == 1 || return @op("aten::matmul")(a, b)::Tensor
    ndims(b) == 2 || refuse("a vector times a tensor of ", ndims(b), " dimensions; expected a matrix, or a' * b, or a .* b")
    return @op("aten::matmul")(trailing(a, 2), b)::Tensor
end
Base.:^(a::Tensor, b::Integer) = @op("aten::matrix_power")(a, b)::Tensor
Base.literal_pow(::typeof(^), a::Tensor, ::Val{b}) where {b} = a^b

# Broadcasting: each operation with a dot is one call. Dimensions are brought together from the first one on, as Julia does it.

const Broadcasted = Base.Broadcast.Broadcasted
const Operand = Union{Number,AbstractArray,Broadcasted}
operand(x::Number) = x
operand(x::AbstractArray) = Tensor(x)
operand(x::Broadcasted) = operand(Base.materialize(x))

"""Calls an operator of two tensors, the smaller one of which gets dimensions of size 1 behind its own."""
function aligned(call, a::Tensor, b::Tensor)
    one, other = ndims(a), ndims(b)
    (one == other || one == 0 || other == 0) && return call(a, b)::Tensor
    return call(trailing(a, other), trailing(b, one))::Tensor
end
elementwise(call, a::Tensor, b::Tensor) = aligned(call, a, b)
elementwise(call, a::Tensor, b) = elementwise(call, a, tensor_operand(b))
elementwise(call, a, b::Tensor) = elementwise(call, tensor_operand(a), b)
tensor_operand(x) = (made = operand(x); made isa Tensor ? made : Tensor(made))

# C's names of the forms of two tensors, and of a tensor and a number.
for (symbol, tensors, number) in ((:+, "add.Tensor", "add.Scalar"), (:-, "sub.Tensor", "sub.Scalar"), (:*, "mul.Tensor", "mul.Scalar"),
    (:/, "div.Tensor", "div.Scalar"), (:^, "pow.Tensor_Tensor", "pow.Tensor_Scalar"), (:(==), "eq.Tensor", "eq.Scalar"),
    (:(!=), "ne.Tensor", "ne.Scalar"), (:<, "lt.Tensor", "lt.Scalar"), (:<=, "le.Tensor", "le.Scalar"), (:>, "gt.Tensor", "gt.Scalar"),
    (:>=, "ge.Tensor", "ge.Scalar"), (:mod, "remainder.Tensor", "remainder.Scalar"), (:rem, "fmod.Tensor", "fmod.Scalar"),
    (:max, "maximum", nothing), (:min, "minimum", nothing), (:atan, "atan2", nothing), (:hypot, "hypot", nothing),
    (:&, "bitwise_and.Tensor", nothing), (:|, "bitwise_or.Tensor", nothing), (:xor, "bitwise_xor.Tensor", nothing))
    @eval Base.broadcasted(::typeof($symbol), a::Tensor, b::Tensor) = elementwise(@op($("aten::$tensors")), a, b)
    @eval Base.broadcasted(::typeof($symbol), a::Tensor, b::Operand) = elementwise(@op($("aten::$tensors")), a, b)
    @eval Base.broadcasted(::typeof($symbol), a::Operand, b::Tensor) = elementwise(@op($("aten::$tensors")), a, b)
    number === nothing ||
        @eval Base.broadcasted(::typeof($symbol), a::Tensor, b::Real) = @op($("aten::$number"))(a, b)::Tensor
end
Base.broadcasted(::typeof(+), a::Real, b::Tensor) = @op("aten::add.Scalar")(b, a)::Tensor
Base.broadcasted(::typeof(*), a::Real, b::Tensor) = b * a
Base.broadcasted(::typeof(-), a::Real, b::Tensor) = @op("aten::rsub.Scalar")(b, a)::Tensor
Base.broadcasted(::typeof(/), a::Real, b::Tensor) = @op("aten::mul.Scalar")(@op("aten::reciprocal")(b), a)::Tensor
Base.broadcasted(::typeof(^), a::Real, b::Tensor) = @op("aten::pow.Scalar")(a, b)::Tensor
Base.broadcasted(::typeof(Base.literal_pow), ::typeof(^), a::Tensor, ::Val{b}) where {b} = @op("aten::pow.Tensor_Scalar")(a, b)::Tensor

for (symbol, name) in ((:-, "neg"), (:!, "logical_not"), (:abs2, "square"), (:inv, "reciprocal"), (:round, "round"),
    ((symbol, string(symbol)) for symbol in (:exp, :expm1, :log, :log1p, :log2, :log10, :sqrt, :abs, :sign, :sin, :cos, :tan, :asin, :acos,
        :atan, :sinh, :cosh, :tanh, :floor, :ceil, :trunc, :isnan, :isinf, :isfinite))...)
    @eval Base.broadcasted(::typeof($symbol), a::Tensor) = @op($("aten::$name"))(a)::Tensor
end
Base.broadcasted(::typeof(identity), a::Tensor) = a
Base.broadcasted(::Type{T}, a::Tensor) where {T<:Number} = to(a, T)
Base.broadcasted(::typeof(clamp), a::Tensor, low::Real, high::Real) = @op("aten::clamp")(a, low, high)::Tensor
function Base.broadcasted(::typeof(ifelse), condition::Tensor, a, b)
    yes, no = tensor_operand(a), tensor_operand(b)
    count = maximum(ndims, (condition, yes, no))
    fitted(x) = ndims(x) == 0 ? x : trailing(x, count)
    return @op("aten::where.self")(fitted(condition), fitted(yes), fitted(no))::Tensor
end
tensor_operand(x::Tensor) = x

# An array in its place would leave autograd without a word.
Base.broadcastable(::Tensor) = refuse("this function has no dotted form for tensors; use one of LibTorch's, aten.NAME(tensor), ",
    "or the array: view_array(tensor)")

# a .= b
Base.materialize!(into::Tensor, from::Tensor) = (elementwise(@op("aten::copy_"), into, from); into)
Base.materialize!(into::Tensor, from::Broadcasted) = Base.materialize!(into, Base.materialize(from))
Base.materialize!(into::Tensor, from::Number) = fill!(into, from)
Base.materialize!(into::Tensor, from::AbstractArray) = Base.materialize!(into, Tensor(from))
Base.materialize!(into::AbstractArray, from::Tensor) = (into .= Array(from))

"""
    cross_entropy(logits, labels)

The mean over logits [..., classes] and Int64 labels [...]; classes count from 0, and -100 is left out."""
cross_entropy(logits::Tensor, labels::Tensor) = made(Tensor, out -> LibAccel.accel_cross_entropy(logits, labels, out))
