# SPDX-License-Identifier: Apache-2.0
"""
Distributed training: Julia's own types and idioms over libaccel. `Accel.LibAccel` has every function of C under its own name.

    using Accel
    State(cpu = true) do state
        println(state, gather(state, Tensor(process_index(state))))
    end
"""
module Accel

include("LibAccel.jl")
using .LibAccel: LibAccel

include("errors.jl")
include("keep.jl")
include("pressure.jl")
include("handle.jl")
include("dtype.jl")
include("map.jl")
include("value.jl")
include("tensor.jl")
include("memory.jl")
include("array.jl")
include("operator.jl")
include("overload.jl")
include("arithmetic.jl")
include("indexing.jl")
include("indexed_elements.jl")
include("shape.jl")
include("reducing.jl")
include("linear_algebra.jl")
include("scope.jl")
include("callback.jl")
include("module.jl")
include("tree.jl")
include("state.jl")
include("communication.jl")
include("optimizer.jl")
include("scheduler.jl")
include("data/dataset.jl")
include("data/files.jl")
include("data/items.jl")
include("data/sampler.jl")
include("data/loader.jl")
include("training.jl")
include("parameters.jl")
include("checkpoint.jl")
include("device_map.jl")
include("profiler.jl")
include("launch.jl")
include("tracking.jl")
include("library.jl")
include("messages.jl")
include("observing.jl")
include("generated/methods.jl")
include("generated/topics.jl")

function __init__()
    LibAccel.before_error[] = throw_carried
    # Where Julia itself makes an exception of Ctrl-C: at the prompt, and in `julia -e`.
    interruptible!(isinteractive() || isempty(PROGRAM_FILE))
    atexit(note_the_end)
    atexit(tell)
    Sweeper()
    return nothing
end

end # module
