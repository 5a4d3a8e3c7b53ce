# The tests of one process: julia --project=bindings/julia bindings/julia/test/runtests.jl. Those of several are in ranks.jl.
using Test, Accel

const L = Accel.LibAccel
status_of(call) = try
    call()
    L.ACCEL_OK
catch exception
    exception isa AccelError ? exception.status : rethrow()
end

# A vector of what a function gives, made at each read.
struct Mapped <: AbstractVector{Any}
    make::Any
    length::Int
end
mapped(make, length) = Mapped(make, length)
Base.size(mapped::Mapped) = (mapped.length,)
Base.getindex(mapped::Mapped, index::Int) = mapped.make(index)

@testset "Accel" begin
    for name in ("tensor", "operator", "value", "model", "callback", "training", "dataset", "data", "observing", "memory", "misuse", "process", "tracking", "profiler")
        @testset "$name" begin
            include(name * "_test.jl")
        end
    end
    @testset "every exported name is explained" begin
        explained = keys(Base.Docs.meta(Accel))
        @test filter(name -> !(Base.Docs.Binding(Accel, name) in explained), names(Accel)) == []
    end
end
