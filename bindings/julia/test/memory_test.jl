# SPDX-License-Identifier: Apache-2.0
alive() = Accel.LibAccel.accel_debug_live_objects()

function settled()
    for _ in 1:4
        GC.gc()
    end
    Accel.sweep()
    return length(Accel.KEPT)
end

@testset "what is no longer used is given back" begin
    function use()
        for _ in 1:1000
            Tensor(rand(Float32, 10)) .+ 1
        end
    end
    use()
    kept, before = settled(), alive()
    use()
    @test settled() <= kept && alive() <= before
end

@testset "an array lives as long as a tensor that shares it" begin
    function shared()
        collected = Ref(false)
        array = finalizer(_ -> collected[] = true, fill(3.0, 100))
        return Tensor(array), collected
    end
    tensor, collected = shared()
    settled()
    @test !collected[] && item(sum(tensor)) == 300
    close(tensor)
    settled()
    settled()
    @test collected[]
end

@testset "a callback lives as long as its module" begin
    function made()
        collected = Ref(false)
        captured = finalizer(_ -> collected[] = true, [1.0])
        return Sequential(Model((self, x) -> x .+ captured[1], "Captures")), collected
    end
    model, collected = made()
    settled()
    @test !collected[] && item(model(Tensor(1.0))) == 2
    close(model)
    settled()
    settled()
    @test collected[]
end

@testset "collection in the middle of a callback" begin
    model = Model("Collects") do self, x
        garbage = [Tensor(rand(100)) for _ in 1:50]
        GC.gc()
        return x .+ self_sum(garbage)
    end
    self_sum(tensors) = item(sum(tensors[end])) * 0
    @test all(item(model(Tensor(Float64(i)))) == i for i in 1:20)
end

@testset "large tensors ask for a collection" begin
    resident() = parse(Int, split(read("/proc/self/statm", String))[2]) * 4096
    Accel.pressure!(64 << 20)
    big = Accel.ones(Float32, 4 << 20)
    foreach(_ -> big .+ 1, 1:10)
    before = resident()
    foreach(_ -> big .+ 1, 1:200) # 3.2 GB in all
    @test resident() - before < 512 << 20
    Accel.pressure!(512 << 20)
end
