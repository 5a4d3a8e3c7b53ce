# Workload call_overhead in Julia: nanoseconds of one accel_tensor_numel(), the least of the rounds.
include(joinpath(@__DIR__, "..", "..", "bindings", "julia", "src", "LibAccel.jl"))
using .LibAccel

const CALLS = 1_000_000
const ROUNDS = 10

function measure(tensor)
    least, count = Inf, Ref{Int64}(0)
    for _ in 1:ROUNDS
        start = time_ns()
        for _ in 1:CALLS
            LibAccel.accel_tensor_numel(tensor, count)
        end
        least = min(least, (time_ns() - start) / CALLS)
    end
    return least
end

out = Ref{Ptr{LibAccel.accel_tensor_t}}(C_NULL)
cpu = LibAccel.accel_device_t(LibAccel.ACCEL_DEVICE_CPU, -1)
LibAccel.accel_tensor_full(C_NULL, 0, 0.0, LibAccel.ACCEL_DTYPE_FLOAT32, cpu, out)
println(measure(out[]))
LibAccel.accel_tensor_release(out[])
