# SPDX-License-Identifier: Apache-2.0
@testset "an array is shared, with its indices" begin
    array = Float32[1 2 3; 4 5 6]
    tensor = Tensor(array)
    @test size(tensor) == (2, 3) && strides(tensor) == strides(array) && eltype(tensor) == Float32 && ndims(tensor) == 2
    @test pointer(view_array(tensor)) == pointer(array)
    @test view_array(tensor) isa Matrix{Float32}
    array[2, 3] = 60
    @test tensor[2, 3] == 60
    view_array(tensor)[1, 1] = 10
    @test array[1, 1] == 10
    @test !iscontiguous(tensor)
end

@testset "an array that grows does not take the memory of its tensor along" begin
    array = collect(1.0:100.0)
    tensor = Tensor(array)
    try
        append!(array, 1:1000)
    catch problem
        @test VERSION < v"1.11-" && occursin("shared", sprint(showerror, problem))
    end
    GC.gc()
    @test Array(tensor) == 1:100
end

@testset "reversed dimensions are row-major" begin
    array = rand(Float32, 3, 2)
    tensor = Tensor(array; reversed = true)
    @test size(tensor) == (2, 3) && iscontiguous(tensor)
    @test Array(tensor) == permutedims(array)
    viewed = view_array(tensor)
    @test viewed isa PermutedDimsArray && pointer(parent(viewed)) == pointer(array)
end

@testset "arrays of every type and number of dimensions" begin
    for type in (UInt8, Int8, Int16, Int32, Int64, UInt16, UInt32, UInt64, Float16, Float32, Float64, Bool, ComplexF32, ComplexF64, BFloat16)
        array = reshape([type(i % 2) for i in 1:24], 2, 3, 4)
        tensor = Tensor(array)
        @test eltype(tensor) == type && Array(tensor) == array
        @test sizeof(tensor) == sizeof(array)
    end
    @test size(Tensor(2.5)) == () && item(Tensor(2.5)) == 2.5
    @test size(Tensor(zeros(Float32, 0, 3))) == (0, 3)
end

@testset "permuted memory is shared, gaps are refused" begin
    tensor = Tensor(reshape(Float64.(1:24), 2, 3, 4))
    turned = PermutedDimsArray(tensor, (3, 1, 2))
    @test size(turned) == (4, 2, 3)
    @test view_array(turned) == permutedims(Array(tensor), (3, 1, 2))
    @test pointer(parent(view_array(turned))) == pointer(view_array(tensor))
    @test_throws ArgumentError view_array(view(tensor, 1:1, :, 1:2))
    @test Array(tensor[1:1, :, 1:2]) == Array(tensor)[1:1, :, 1:2]
end

@testset "a shared array outlives its tensor" begin
    viewed = view_array(full(7, 1000))
    GC.gc()
    @test all(viewed .== 7)
end

# Regression: an array over a tensor's memory did not keep it in Julia, once the tensor was collected.
@testset "arrays over the memory of tensors outlive these" begin
    arrays = [view_array(Tensor([1.0, 2, 3]) .+ i) for i in 1:20]
    GC.gc()
    others = [Tensor(fill(-1.0, 3)) .+ 0 for _ in 1:1000] # would be in the memory that was given back
    @test all(arrays[i] == [1, 2, 3] .+ i for i in 1:20) && length(others) == 1000
end

@testset "indices are Julia's" begin
    array = reshape(Int64.(1:12), 3, 4)
    tensor = Tensor(array)
    @test Array(tensor[2, :]) == array[2, :]
    @test Array(tensor[:, end]) == array[:, end]
    @test Array(tensor[2:3, 1:2]) == array[2:3, 1:2]
    @test tensor[3, 4] === 12
    @test_throws BoundsError tensor[4, 1]
    @test_throws BoundsError tensor[0, 1]
    @test_throws DimensionMismatch tensor[1, 1, 1]
end

@testset "made here, converted, copied" begin
    @test Array(Accel.zeros(Float64, 2)) == [0, 0] && Array(Accel.ones(Int32, 2)) == [1, 1]
    @test size(Accel.randn(Float32, 3, 4)) == (3, 4)
    @test all(in(0:4), Array(Accel.rand(0:4, 100)))
    half = to(Tensor(Float32[0.5, 1.5]), BFloat16)
    @test eltype(half) == BFloat16 && Float32.(Array(half)) == [0.5, 1.5]
    tensor = Tensor([1, 2])
    copied = copy(tensor)
    copyto!(tensor, [5, 6])
    @test Array(tensor) == [5, 6] && Array(copied) == [1, 2]
    @test device(tensor) == Device("cpu")
end

@testset "gradients" begin
    x = requires_grad!(Tensor([1.0, 2.0, 3.0]))
    @test gradient(x) === nothing
    backward(sum(x .* x))
    @test Array(gradient(x)) == [2, 4, 6]
    @test !requires_grad(Accel.detach(x)) && no_grad(() -> !requires_grad(x .* 2)) && requires_grad(x .* 2)
    @test no_grad(() -> enable_grad(() -> requires_grad(x .* 2)))
end

@testset "shown" begin
    @test sprint(show, Tensor(Float32[1 2])) == "Tensor(1x2 float32)"
    @test occursin("3.0", sprint(show, MIME("text/plain"), Tensor([1.0, 3.0])))
    @test occursin("requires grad", sprint(show, requires_grad!(Tensor([1.0]))))
    for name in ("cuda:1", "xpu:2", "meta")
        @test sprint(show, Device(name)) == "Device(\"$name\")"
    end
end

@testset "devices" begin
    @test device_count("cpu") == 1 && device_properties("cpu")["type"] == "cpu" && current_device("cpu").index == 0
    @test synchronize("cpu") === nothing && empty_cache!("cpu") === nothing
    @test occursin("the plugin of npu is not loaded", (@test_throws AccelError Device("npu")).value.message)
    @test occursin("counts no memory", (@test_throws AccelError device_memory("cpu")).value.message)
end

@testset "DLPack shares memory with version $(versioned ? 1 : 0)" for versioned in (true, false)
    array = [1.0 2.0; 3.0 4.0]
    lent = dlpack(Tensor(array); versioned = versioned)
    @test pointer(view_array(Tensor(lent; versioned = versioned))) == pointer(array)
    @test_throws AccelError dlpack(requires_grad!(Tensor([1.0])); versioned = versioned)
end
