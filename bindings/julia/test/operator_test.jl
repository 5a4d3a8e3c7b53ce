# SPDX-License-Identifier: Apache-2.0
@testset "Julia's operators" begin
    a, b = [1.0 2; 3 4], [5.0 6; 7 8]
    x, y = Tensor(a), Tensor(b)
    @test Array(x + y) == a + b && Array(x - y) == a - b && Array(x * y) == a * b
    @test Array(x .* y) == a .* b && Array(x ./ y) == a ./ b && Array(-x) == -a
    @test Array(2 .* x .+ 1) == 2 .* a .+ 1 && Array(1 .- x) == 1 .- a && Array(1 ./ x) == 1 ./ a && Array(2x / 4) == 2a / 4
    @test Array(x^2) == a^2 && Array(exp.(x)) ≈ exp.(a) && Array(tanh.(x)) ≈ tanh.(a)
    @test Array(x .^ 2) == a .^ 2 && Array(x .^ 0.5) ≈ sqrt.(a) && Array(.-x) == -a
    @test_throws ArgumentError string.(x)
    @test Array(x .+ b) == a .+ b && Array(b .- x) == b .- a && Array(x .+ 2 .* b) == a .+ 2 .* b
    @test Array(x .> 2) == (a .> 2) && Array(x .== y) == (a .== b)
    @test item(sum(x)) == 10 && item(maximum(x)) == 4
    @test Array(transpose(x)) == permutedims(a) && Array(reshape(x, 4)) == vec(a)
end

@testset "every operator of LibTorch by its name" begin
    x = Tensor(Float32[1 2; 3 4])
    @test Array(aten.softmax(x, 1)) ≈ exp.(Array(x)) ./ sum(exp.(Array(x)); dims = 2)
    @test Array(aten.add(x, x; alpha = 2)) == 3 .* Array(x)
    @test Array(aten.add(x, 1)) == Array(x) .+ 1
    values, places = aten.max(x, 0)
    @test Array(values) == [3, 4] && Array(places) == [1, 1]
    @test Array(aten.cat([x, x], 0)) == vcat(Array(x), Array(x))
    @test Array(aten.mean(x, [0]; keepdim = true)) == [2.0 3.0]
    @test eltype(aten.to(x, Float64)) == Float64
    @test length(aten.split(x, 1)) == 2
    @test length(propertynames(aten)) > 1000 && :matmul in propertynames(aten)
    @test occursin("aten::softmax.int", sprint(show, aten.softmax))
end

@testset "an operator that is found once" begin
    add = Op("aten::add.Tensor")
    x = Tensor([1, 2])
    @test Array(add(x, x)) == [2, 4] && Array(add(x, x; alpha = 10)) == [11, 22]
    @test startswith(schema(add), "aten::add.Tensor(") && occursin("alpha", sprint(show, add))
end

@testset "an operator of the engine" begin
    cross_entropy_of_rows = Op("accel::linear_cross_entropy")
    rows, classes = Tensor(Float32[0 0; 5 7]), Tensor(Float32[1 0; 0 1])
    @test item(cross_entropy_of_rows(rows, classes, Tensor([1, -100]); reduction = "sum")) ≈ log(2)
    @test_throws AccelError cross_entropy_of_rows(rows, classes, Tensor([1, 2]))
end

@testset "refused" begin
    problem = @test_throws AccelError Op("aten::addd")
    @test problem.value.status == Accel.LibAccel.ACCEL_ERROR_NOT_FOUND && occursin("addd", problem.value.message)
    @test_throws AccelError aten.no_such_operator
    @test_throws ArgumentError aten.softmax("text")
    @test_throws ArgumentError aten.add(Tensor([1]), Tensor([1]); no_such_name = 1)
    @test_throws AccelError Tensor(ones(2, 3)) * Tensor(ones(2, 3))
end
