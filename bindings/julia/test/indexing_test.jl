# SPDX-License-Identifier: Apache-2.0
# Tensors as arrays: what holds for an array holds for the tensor over it.
using Statistics

same(tensor, array) = size(tensor) == size(array) && Array(tensor) == array

@testset "elements, parts, views" begin
    array = reshape(collect(1.0:12), 3, 4)
    tensor = Tensor(copy(array))
    @test tensor[2, 3] === array[2, 3] && tensor[7] === array[7] && tensor[CartesianIndex(3, 1)] === array[3, 1]
    @test tensor[end] === array[end] && tensor[end, 1] === array[end, 1] && [x for x in tensor] == vec(array) && first(tensor) === 1.0
    @test sum(x for x in tensor) == sum(array) && collect(eachindex(tensor)) == 1:12 && maximum(collect(tensor)) == 12
    for indices in ((1:2, :), (:, 2), (2, :), ([3, 1], :), (:, [4, 4]), (1:2:3, 2:3), ([true, false, true], 1), (3:-1:1, :), (:,), (2:5,), ([9, 2],))
        @test same(tensor[indices...], array[indices...])
    end
    part = tensor[1:2, :]
    part .= 0
    @test same(tensor, array) # a copy
    view(tensor, 1:2, 2) .= 0
    @test Array(tensor)[1:2, 2] == [0, 0] && size(view(tensor, 2, 2)) == ()
    @test_throws BoundsError tensor[13]
    @test_throws BoundsError tensor[[1, 4], 1]
    @test_throws DimensionMismatch tensor[1, 1, 1]
    @test_throws ArgumentError view(tensor, 3:-1:1, :)
    w = requires_grad!(Tensor([1.0, 2, 3]))
    backward(view(w, 2) * 5 .+ sum(w[2:3]))
    @test Accel.gradient(w) == Tensor([0.0, 6, 1])
end

@testset "writing" begin
    array, tensor = zeros(3, 4), Accel.zeros(Float64, 3, 4)
    for change in (x -> x[2, 3] = 5, x -> x[4] = 1, x -> x[:, 1] = [7, 8, 9], x -> x[3, :] .= 2, x -> x[1:2, 2:3] = [1 2; 3 4], x -> x .+= 1,
                   x -> x[:, 4] .= [1, 2, 3], x -> x .*= [1, 2, 3], x -> x[2, :] = collect(1:4), x -> x[CartesianIndex(1, 1)] = 3, x -> x[:] = 1:12)
        change(array)
        change(tensor)
        @test same(tensor, array)
    end
    tensor[:, 1:2] = Tensor(ones(3, 2))
    @test tensor[2, 2] == 1
    @test_throws ArgumentError tensor[:, 1] = 5
    @test_throws DimensionMismatch tensor[:, 1] = [1, 2]
    other = zeros(3, 4)
    other .= tensor
    @test other == Array(tensor) && copyto!(zeros(3, 4), tensor) == other && copyto!(similar(tensor), other) == tensor
    @test_throws DimensionMismatch copyto!(zeros(4, 3), tensor)
    @test fill!(Accel.ones(Int64, 2), 7) == Tensor([7, 7])
end

@testset "equal, hashed, like another" begin
    a, b = Tensor([1.0, 2]), Tensor([1.0, 2])
    @test a == b && a != Tensor([1.0, 3]) && a != Tensor([1.0 2.0]) && (a == Tensor([1, 2])) === true && isequal(a, b)
    @test hash(a) == hash(b) && length(Set([a, b])) == 1 && Accel.zeros(Float32, 0) == Accel.zeros(Float32, 0)
    @test size(similar(a, Int32, 2, 3)) == (2, 3) && eltype(similar(a, Int32)) == Int32 && size(similar(a, 5)) == (5,)
    @test isempty(Accel.zeros(Float32, 0, 2)) && length(a) == 2 && ndims(a) == 1 && axes(a) == axes([1, 2])
end

@testset "the dimensions of $name" for (name, array) in ("a matrix" => [1.0 5 3; 4 2 6], "a cube" => reshape(sin.(1:24), 2, 3, 4))
    tensor = Tensor(array)
    for reduced in (sum, prod, maximum, minimum, mean, std, var)
        @test item(reduced(tensor)) ≈ reduced(array)
        for dims in (1, 2, (1, 2))
            @test size(reduced(tensor; dims = dims)) == size(reduced(array; dims = dims)) &&
                Array(reduced(tensor; dims = dims)) ≈ reduced(array; dims = dims)
        end
    end
    @test same(reshape(tensor, :, 2), reshape(array, :, 2)) && same(vec(tensor), vec(array)) && same(reshape(tensor, (2, :)), reshape(array, 2, :))
    @test same(permutedims(tensor, ndims(array):-1:1), permutedims(array, ndims(array):-1:1))
    @test same(dropdims(sum(tensor; dims = 1); dims = 1), dropdims(sum(array; dims = 1); dims = 1)) || name == "a cube"
    @test same(tensor .+ [10, 20], array .+ [10, 20]) # the first dimension, as in Julia
    @test same(cat(tensor, array; dims = 3), cat(array, array; dims = 3))
    @test_throws DimensionMismatch reshape(tensor, 5)
end

@testset "joined" begin
    a, b, v = [1 2; 3 4], [5 6; 7 8], [9, 10]
    s, t, u = Tensor(a), Tensor(b), Tensor(v)
    @test same([s; t], [a; b]) && same([s t], [a b]) && same([s t; t s], [a b; b a]) && same([u; v], [v; v]) && same([u u], [v v])
    @test same([s u], [a v]) && same(cat(s, t; dims = 3), cat(a, b; dims = 3))
    @test [s, t] isa Vector{Tensor}
end

@testset "matrices" begin
    a, v = [1.0 2; 3 4], [5.0, 6]
    s, u = Tensor(a), Tensor(v)
    @test same(s', a') && same(transpose(u), collect(transpose(v))) && same(s * u, a * v) && same(u * u', v * v') && same(u' * s, v' * a)
    @test same(Tensor([1.0im 2])', [1.0im 2]')
    @test item(u' * u) == v' * v
    @test_throws ArgumentError u * u
    @test_throws ArgumentError transpose(Accel.zeros(Float32, 2, 2, 2))
    @test_throws DimensionMismatch s + u # without a dot nothing is repeated
    @test_throws MethodError s + 1
    @test_throws MethodError exp(s)
    @test any(s .> 3) && !all(s .> 3)
end

@testset "each element" begin
    a, b = [1.5 -2; 3 4], [2.0, 5]
    s, t = Tensor(a), Tensor(b)
    for f in (exp, sin, cos, tan, tanh, atan, sinh, cosh, abs, abs2, sign, floor, ceil, trunc, inv, -, isnan, expm1)
        @test Array(f.(s)) ≈ f.(a)
    end
    for f in (log, sqrt, log2, log10, log1p), x in (abs,)
        @test Array(f.(x.(s))) ≈ f.(x.(a))
    end
    for f in (+, -, *, /, max, min, mod, rem, ==, !=, <, <=, >, >=, atan, hypot)
        @test Array(f.(s, t)) ≈ f.(a, b) && Array(f.(s, 2)) ≈ f.(a, 2) && Array(f.(3, s)) ≈ f.(3, a) && Array(f.(s, b)) ≈ f.(a, b)
    end
    @test Array(abs.(s) .^ t) ≈ abs.(a) .^ b && Array(2 .^ s) ≈ 2 .^ a && Array(s .^ 2) ≈ a .^ 2 && Array(s .^ -1) ≈ a .^ -1
    @test Array(.!(s .> 2) .& (t .> 1)) == (.!(a .> 2) .& (b .> 1)) && Array((s .> 2) .| (s .< 0)) == ((a .> 2) .| (a .< 0))
    @test Array(ifelse.(s .> 0, s, 0)) == ifelse.(a .> 0, a, 0) && Array(clamp.(s, 0, 2)) == clamp.(a, 0, 2) && eltype(Float32.(s)) == Float32
    @test_throws ArgumentError string.(s)
end

@testset "places that lie anywhere are read and written" begin
    array = Float32[1 2 3; 4 5 6]
    changed(change) = (both = (copy(array), Tensor(copy(array))); foreach(change, both); both[2] == both[1])
    tensor = Tensor(array)
    # A mask has the elements in the order of an array's.
    @test tensor[tensor .> 2] == array[array .> 2]
    @test tensor[array .> 2] == array[array .> 2]
    @test changed(x -> x[x .> 2] .= 0)
    @test changed(x -> x[x .> 2] = [10, 20, 30, 40])
    @test changed(x -> x[x .> 2] .+= 1)
    @test changed(x -> x[[2, 1], 1] = [7, 8])
    @test changed(x -> x[[2, 1], [3, 1]] .= 9)
    @test changed(x -> x[[2, 1], 2:3] = [1 2; 3 4])
    @test changed(x -> x[:, [true, false, true]] .*= 2)
    @test changed(x -> x[end:-1:1, 1] = [1, 2])
    @test changed(x -> x[2, [1, 3]] .= [5, 6])
    @test_throws DimensionMismatch tensor[tensor .> 2] = [1, 2]
    @test_throws DimensionMismatch tensor[[1, 2], 1] = [1, 2, 3]
    @test_throws DimensionMismatch tensor[[1, 2], 1] = [1]
    @test_throws DimensionMismatch tensor[Tensor([true, false])]
    @test_throws ArgumentError tensor[Tensor([1, 2])]
    @test_throws ArgumentError tensor[[1, 2], 1] = 5
    @test_throws BoundsError tensor[[1, 3], 1] .= 5
    weight = requires_grad!(Tensor(copy(array)))
    backward(sum(weight[weight .> 4]))
    @test Accel.gradient(weight) == [0 0 0; 0 1 1]
end

@testset "slices are views" begin
    array = [1 2 3; 4 5 6]
    tensor = Tensor(copy(array))
    @test [Array(row) for row in eachrow(tensor)] == collect(eachrow(array))
    @test [Array(column) for column in eachslice(tensor; dims = 2)] == collect(eachcol(array))
    selectdim(tensor, 2, 2) .= 0
    first(eachcol(tensor)) .= 9
    @test tensor == [9 0 3; 9 0 6]
    @test keys(tensor) == CartesianIndices((2, 3)) && keys(vec(tensor)) == 1:6 && LinearIndices(tensor)[2, 3] == 6
end
