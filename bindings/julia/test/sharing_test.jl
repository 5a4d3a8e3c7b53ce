# SPDX-License-Identifier: Apache-2.0
# Which arrays are shared, and which are refused: none is copied without a word.

# Stands for an array of another device: it has a pointer that is none of the CPU's, and elements only one by one.
struct DeviceArray{T,N} <: AbstractArray{T,N}
    memory::Array{T,N}
end
Base.size(array::DeviceArray) = size(array.memory)
Base.getindex(::DeviceArray, indices::Int...) = error("one by one")
Base.strides(array::DeviceArray) = strides(array.memory)
struct DevicePointer
    address::UInt
end
Base.pointer(array::DeviceArray) = DevicePointer(UInt(pointer(array.memory)))

# Its package, or the program, says how it is shared.
struct KnownArray{T,N} <: AbstractArray{T,N}
    memory::Array{T,N}
end
Base.size(array::KnownArray) = size(array.memory)
Base.getindex(::KnownArray, indices::Int...) = error("one by one")
Accel.shared_memory(array::KnownArray) =
    (pointer = UInt(pointer(array.memory)), strides = strides(array.memory), device = "cpu", owner = array)

address(tensor) = UInt(Accel.output(out -> L.accel_tensor_data(tensor, out), Ptr{Cvoid}))

@testset "strided views are shared with their strides" begin
    array = reshape(collect(1.0:24), 4, 6)
    for shared in (view(array, 2:3, 1:2:6), view(array, :, 2), PermutedDimsArray(array, (2, 1)), transpose(array), array', array[:, 1]',
                   reshape(view(array, :, 2:3), 2, 4), reinterpret(Int64, array), view(PermutedDimsArray(array, (2, 1)), 2:4, 1:2))
        tensor = Tensor(shared)
        @test Array(tensor) == shared && strides(tensor) == strides(shared)
        first_of_all = Base.unsafe_convert(Ptr{eltype(shared)}, shared)
        @test address(tensor) == UInt(first_of_all)
        @test Array(Tensor(shared; reversed = true)) == permutedims(shared, ndims(shared):-1:1)
    end
    part = Tensor(view(array, 1:2, 1:2))
    array[1, 1] = 100
    @test part[1, 1] == 100
    part[2, 2] = 200
    @test array[2, 2] == 200
    lives() = (memory = rand(100); (Tensor(view(memory, 11:20)), sum(memory[11:20])))
    tensor, total = lives()
    GC.gc()
    @test item(sum(tensor)) ≈ total
end

@testset "what has no such memory is refused" begin
    array = rand(3, 3)
    for refused in (view(array, [1, 3], :), DeviceArray(array), view(DeviceArray(array), 1:2, :), DeviceArray(array)', trues(3), 1.0im .* array |> adjoint,
                    view(array, 3:-1:1, 1))
        problem = (@test_throws ArgumentError Tensor(refused)).value
        @test occursin("collect(x)", problem.msg)
        @test_throws ArgumentError TensorDataset(refused)
        @test_throws ArgumentError gather(State(cpu = true), refused)
    end
    @test Array(Tensor(1:3)) == [1, 2, 3] # a range has no memory, and cannot be written
    loader = DataLoader(Dataset(mapped(i -> DeviceArray([i]), 2)))
    @test_throws ArgumentError first(loader)
end

@testset "a package can say how its arrays are shared" begin
    array = KnownArray([1.0 2; 3 4])
    tensor = Tensor(array)
    @test Array(tensor) == array.memory && address(tensor) == UInt(pointer(array.memory))
    tensor[1, 1] = 10
    @test array.memory[1, 1] == 10
    @test size(Tensor(KnownArray(zeros(2, 3)); reversed = true)) == (3, 2)
end
