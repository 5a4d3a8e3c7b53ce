# SPDX-License-Identifier: Apache-2.0
# What functions of Base, Statistics and LinearAlgebra give for tensors is what they give for arrays.
using LinearAlgebra, Statistics

const MATRIX = [1.0 5 3; 4 2 6]
const VECTOR = [3.0, 1, 2]
as_arrays(f, arrays...) = (given = f(map(Tensor, arrays)...); (given isa Tensor ? Array(given) : given) ≈ f(arrays...))
# A tensor without dimensions where arrays give a number.
as_number(f, arrays...) = (given = f(map(Tensor, arrays)...); given isa Tensor && ndims(given) == 0 && item(given) ≈ f(arrays...))

# Regression: in Julia, `sum(abs2, x)`, `norm(x)` and `cumsum(x)` of a tensor left autograd without a word.
@testset "reductions of functions, and along dimensions" begin
    for f in (x -> sum(abs2, x), x -> maximum(abs, x), x -> mean(abs2, x), x -> prod(abs, x), norm)
        @test as_number(f, MATRIX)
    end
    for f in (x -> sum(abs2, x; dims = 1), x -> minimum(abs, x; dims = 2), x -> mean(abs2, x; dims = (1, 2)), x -> all(x .> 1; dims = 1),
        x -> any(x .> 5; dims = 2), x -> cumsum(x; dims = 2), x -> cumprod(x; dims = 1))
        @test as_arrays(f, MATRIX)
    end
    @test as_arrays(cumsum, VECTOR) && cumsum(Tensor(VECTOR)) isa Tensor
    @test_throws ArgumentError cumsum(Tensor(MATRIX))
    weight = requires_grad!(Tensor(copy(VECTOR)))
    backward(sum(abs2, weight) + norm(weight, 1))
    @test Accel.gradient(weight) ≈ 2VECTOR .+ 1
end

# Regression: in Julia, `map(f, matrix)` of a tensor gave a vector.
@testset "places, order and copies" begin
    for f in (argmax, argmin, findmax, findmin, x -> argmax(x; dims = 1), x -> findall(x .> 2), x -> findfirst(isequal(6), x), x -> count(>(2), x))
        @test f(Tensor(MATRIX)) == f(MATRIX)
    end
    @test argmax(Tensor(VECTOR)) == 1 && sortperm(Tensor(VECTOR)) == [2, 3, 1]
    for f in (sort, x -> sort(x; rev = true), reverse, x -> repeat(x, 2), x -> repeat(x; inner = 2, outer = 2), x -> repeat(x, 2, 3), zero)
        @test as_arrays(f, VECTOR)
    end
    for f in (x -> sort(x; dims = 2), x -> reverse(x; dims = 1), x -> repeat(x, 2, 2), x -> repeat(x; inner = (1, 2), outer = (2, 1)))
        @test as_arrays(f, MATRIX)
    end
    # Any function of Julia gives an array, of the same sizes.
    @test map(x -> x^2 + 1, Tensor(MATRIX)) == MATRIX .^ 2 .+ 1
    @test map(+, Tensor(MATRIX), Tensor(MATRIX)) == 2MATRIX
    @test Matrix(Tensor(MATRIX)) == MATRIX && Vector(Tensor(VECTOR)) == VECTOR && convert(Matrix{Float32}, Tensor(MATRIX)) == MATRIX
    @test unique(Tensor([1, 1, 2])) == [1, 2] && eltype(unique(Tensor([1, 1, 2]))) == Int
end

# Regression: in Julia, `[array; tensor]` was an error, and `vcat(tensor, 4)` a list of objects.
# Regression: in Julia, `tensor == array` was false for equal elements.
@testset "arrays and tensors meet" begin
    tensor = Tensor(MATRIX)
    @test tensor == MATRIX && MATRIX == tensor && tensor != MATRIX' && tensor ≈ MATRIX .+ 1e-12 && MATRIX ≈ tensor && !(tensor ≈ 2MATRIX)
    @test +tensor + MATRIX == 2MATRIX && MATRIX - tensor == zero(MATRIX)
    @test tensor * MATRIX' == MATRIX * MATRIX' && MATRIX' * tensor == MATRIX' * MATRIX && MATRIX * Tensor(VECTOR) == MATRIX * VECTOR
    for joined in ([tensor; MATRIX], [MATRIX; tensor])
        @test joined isa Tensor && joined == [MATRIX; MATRIX]
    end
    @test hcat(MATRIX, tensor) == hcat(MATRIX, MATRIX) && cat(MATRIX, tensor; dims = 3) == cat(MATRIX, MATRIX; dims = 3)
    @test vcat(Tensor(VECTOR), 4) == [VECTOR; 4] && vcat(0, Tensor(VECTOR), 4) == [0; VECTOR; 4]
    @test [MATRIX tensor; tensor tensor] == [MATRIX MATRIX; MATRIX MATRIX]
end

@testset "linear algebra" begin
    square = [2.0 1; 1 3]
    for f in (tr, det)
        @test as_number(f, square)
    end
    @test as_number(dot, VECTOR, VECTOR) && as_number(x -> norm(x, 1), VECTOR) && as_number(x -> norm(x, Inf), VECTOR)
    @test as_arrays(inv, square) && as_arrays(diag, square) && as_arrays(\, square, [1.0, 2])
    @test item(dot(Tensor(VECTOR), VECTOR)) == dot(VECTOR, VECTOR)
end

@testset "tensors are shown as arrays are" begin
    shown(x) = split(sprint(show, MIME"text/plain"(), x), '\n'; limit = 2)[2]
    @test shown(Tensor(Float32[1 2; 3 4.5])) == shown(Float32[1 2; 3 4.5])
    @test shown(Tensor([1, 20])) == shown([1, 20])
end

# Regression: in Julia, a number inside of a tuple or named tuple was refused by collectives, which the page promised.
@testset "numbers inside of trees go through collectives" begin
    State(cpu = true) do state
        reduced = Accel.reduce(state, (loss = 0.5f0, counts = (1, [2])))
        @test reduced == (loss = 0.5f0, counts = (1, [2])) && reduced.loss isa Float32
        @test gather(state, (1, (a = 2.5,))) == ([1], (a = [2.5],)) && gather(state, 3) == [3]
        @test_throws ArgumentError Accel.broadcast!(state, ([1.0], 3))
    end
end

@testset "no method is ambiguous" begin
    @test isempty(detect_ambiguities(Accel, Base, LinearAlgebra, Statistics))
end
