# The tests of one process: julia --project=bindings/julia bindings/julia/test/runtests.jl. Those of several are in ranks.jl.
using Test, Accel

@testset "Accel" begin
    for name in ("tensor", "operator", "value", "model", "callback", "training", "data", "memory", "misuse", "process")
        @testset "$name" begin
            include(name * "_test.jl")
        end
    end
    GC.gc()
    GC.gc()
end
