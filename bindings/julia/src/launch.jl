# SPDX-License-Identifier: Apache-2.0
# Ranks that the program starts itself.

# The process ends without Julia's own end.
function run_function(body, local_process_index)
    body(local_process_index)
    tell()
    flush(stdout)
    flush(stderr)
    return nothing
end

run_launched(local_process_index, block) = callback_status(() -> run_function(object_of(block), Int(local_process_index)))
launch_callback() = @cfunction(run_launched, Int32, (Int32, Ptr{Cvoid}))

"""
    launch(num_processes; options...) do local_process_index ... end

Runs the function in several processes, each a rank, and waits for all of them. Julia has threads of its own, so the processes are not
copies of this one: the program is started again, and runs up to the same call of `launch`, which runs the function. Options are those of
`accel_launch_options_t`: `mixed_precision = :bf16`, `cpu = true`, `max_restarts`, `timeout_ms`, `log_dir`, ..."""
function launch(body::Function, num_processes::Integer; start_method = :program, options...)
    with_options(LibAccel.accel_launch_options_t; num_processes, start_method, options...) do given
        LibAccel.accel_launch(given, launch_callback(), keep(body), destroy())
    end
    return nothing
end
