# SPDX-License-Identifier: Apache-2.0
# The profiler: `profile` is a block, and a callback when a cycle is complete.

run_trace_ready(handle, block) = callback_status() do
    object_of(block)(Profile(LibAccel.accel_profile_retain(handle)))
    return nothing
end
trace_ready_callback() = @cfunction(run_trace_ready, Int32, (Ptr{LibAccel.accel_profile_t}, Ptr{Cvoid}))

"""
    profile(state; on_trace_ready, options...) do profile ... end

Records what the block does, as Chrome traces: operators, collectives, waits. `on_trace_ready(profile)` is called when a cycle of the
schedule is complete, and at the end; `step!(profile)` ends a step. The profile may be used after the block: `export_trace`,
`key_averages`, `memory_timeline`. Gives what the block gives.

    profile(state; active = 2, warmup = 1, output_trace_dir = "traces") do profile
        for batch in loader
            train(batch)
            step!(profile)
        end
    end
"""
function profile(body::Function, state::State; on_trace_ready = nothing, options...)
    task = current_task()
    was_sticky = task.sticky
    task.sticky = true  # LibTorch records one thread
    try
        begun = begin_profile(state, on_trace_ready; options...)
        local result
        try
            result = body(begun)
        catch
            # The exception of the body is the one to hear of.
            ccall(LibAccel.@address(accel_profile_end), Int32, (Ptr{LibAccel.accel_profile_t},), begun)
            rethrow()
        end
        LibAccel.accel_profile_end(begun)
        return result
    finally
        task.sticky = was_sticky
    end
end

begin_profile(state, ::Nothing; options...) = with_options(LibAccel.accel_profile_options_t; options...) do given
    made(Profile, out -> LibAccel.accel_profile_begin(state, given, C_NULL, C_NULL, C_NULL, out))
end
begin_profile(state, on_trace_ready; options...) = with_options(LibAccel.accel_profile_options_t; options...) do given
    made(Profile, out -> LibAccel.accel_profile_begin(state, given, trace_ready_callback(), keep(on_trace_ready), destroy(), out))
end

"""    merge_traces(paths, path): joins the traces of several ranks, files or one folder, to one file."""
function merge_traces(paths, path)
    texts = string.(paths isa AbstractString ? [paths] : paths)
    GC.@preserve texts LibAccel.accel_merge_traces(pointer.(texts), length(texts), string(path))
    return nothing
end
