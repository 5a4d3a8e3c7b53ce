# SPDX-License-Identifier: Apache-2.0
roundtrip(object) = Accel.result(out -> Accel.lend(value -> Accel.LibAccel.accel_value_copy(value, out), object))

@testset "there and back" begin
    for object in (nothing, true, 3, -1.5, "text ü", Float32, Device("cuda:1"), Any[1, "two", Any[]])
        @test roundtrip(object) == object
    end
    @test roundtrip((1, (2, "x"))) == (1, (2, "x")) && roundtrip(Dict(1 => (), "1" => 2)) == Dict(1 => (), "1" => 2) &&
          roundtrip(Bytes(0x00:0xff, "a/b")) == Bytes(0x00:0xff, "a/b") && roundtrip(Bytes(UInt8[])).type == ""
    @test roundtrip(:name) == "name" && roundtrip(Int8(3)) === 3
    map = roundtrip((b = 1, a = (c = Tensor([1, 2]),)))
    @test collect(keys(map)) == ["b", "a"] && Array(map["a"]["c"]) == [1, 2]
    @test roundtrip(Dict("x" => 1)) == Dict("x" => 1)
end

@testset "a tensor in a tree is the same one" begin
    tensor = Tensor([1.0])
    @test view_array(roundtrip([tensor])[1]) |> pointer == pointer(view_array(tensor))
end

@testset "JSON" begin
    @test to_json((a = (1, 2.5, nothing), b = Tensor([1 2; 3 4]))) == "{\"a\":[1,2.5,null],\"b\":[[1,2],[3,4]]}"
    @test from_json("[1, {\"x\": true}]") == [1, Dict("x" => true)]
    @test_throws AccelError from_json("[1")
end

# Regression: a part of a text was read beyond its end in Julia.
@testset "a part of a text ends where it ends" begin
    lines = split("[1]\n[2]\n{}", '\n')
    @test from_json.(lines) == [[1], [2], Dict()] && Device(SubString("cpu:1", 1, 3)) == Device("cpu")
    @test kind(Model(SubString("Own rest", 1, 3))) == "Own" && roundtrip(lines) == ["[1]", "[2]", "{}"]
    @test to_json(Dict(SubString("key other", 1, 3) => 1)) == "{\"key\":1}"
end

@testset "trees" begin
    doubled = map_tensors(x -> x .* 2, (a = Tensor([1]), b = "kept"))
    @test Array(doubled["a"]) == [2] && doubled["b"] == "kept"
    @test Array(concatenate([Tensor([1]), Tensor([2, 3])])) == [1, 2, 3]
    @test Array(concatenate([Tensor([1 2]), Tensor([3 4])]; dim = 2)) == [1 2 3 4]
    @test listify((Tensor([1 2; 3 4]),)) == ([[1, 2], [3, 4]],)
    @test Array(slice_tensors([Tensor([1, 2, 3, 4])], 2:3)[1]) == [2, 3]
    @test Array(pad_input_tensors(Tensor([1, 2, 3]), 2)) == [1, 2, 3, 0]
    @test equal((a = Tensor([1]),), (a = Tensor([1]),)) && !equal(Tensor([1]), Tensor([2]))
    @test find_batch_size([Tensor([1, 2, 3])]) == 3
    @test eltype(convert_to_fp32(Tensor(Float16[1]))) == Float32
end

@testset "maps keep their order" begin
    map = Map("b" => 1, "a" => 2)
    map["b"] = 3
    map["c"] = 4
    @test collect(map) == ["b" => 3, "a" => 2, "c" => 4] && length(map) == 3 && haskey(map, "a") && get(map, "z", 0) == 0
    @test_throws KeyError map["z"]
end

@testset "what is not a value" begin
    @test_throws ArgumentError to_json(1:3 => 2)
    @test_throws ArgumentError to_json(Vector{Int})
    @test_throws ArgumentError to_json("a\0b")
    @test_throws InexactError to_json(typemax(UInt64))
end
