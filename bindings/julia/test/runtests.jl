# SPDX-License-Identifier: Apache-2.0
# The tests of one process: julia --project=bindings/julia bindings/julia/test/runtests.jl. Those of several are in ranks.jl.
using Test, Accel, Libdl
using Accel.Library, Accel.Values, Accel.Processes, Accel.Collectives, Accel.Tensors, Accel.Autograd, Accel.Layers, Accel.Optimizers,
    Accel.Data, Accel.Training, Accel.BigModels, Accel.Checkpoints, Accel.Tracking

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

# Another process.
const JULIA = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project())`

function run_program(program; threads = 1, before_end = process -> nothing)
    output = Pipe()
    command = setenv(`$JULIA -e $program`, merge(Dict(ENV), Dict("JULIA_NUM_THREADS" => string(threads))))
    process = run(pipeline(command; stdout = output, stderr = output); wait = false)
    close(output.in)
    before_end(process)
    said = read(output, String)
    wait(process)
    return process, said
end

@testset "Accel" begin
    for name in ("exports", "tensor", "sharing", "indexing", "array", "operator", "value", "model", "callback", "training", "dataset", "data", "observing",
        "memory", "misuse", "process", "loading", "tokenizer", "tracking", "profiler")
        @testset "$name" begin
            include(name * "_test.jl")
        end
    end
end
