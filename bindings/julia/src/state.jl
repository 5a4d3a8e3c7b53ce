# SPDX-License-Identifier: Apache-2.0
# The program's handle to the distributed job.

"""The number of a name: constants of C are symbols in Julia."""
number_of(names::NamedTuple, name::Symbol) = haskey(names, name) ? Int32(names[name]) :
    refuse(":", name, " is not known; expected one of ", join((":$each" for each in keys(names)), ", "))
number_of(names::NamedTuple, name::AbstractString) = number_of(names, Symbol(name))
number_of(::NamedTuple, number) = number
name_of(names::NamedTuple, number) = keys(names)[findfirst(==(number), values(names))]

@doc """
    State(; options...)
    State(; options...) do state ... end

Joins the job: rank, device and precision, from the options, then from the environment that the launcher set. Options are those of
`accel_state_options_t`: `cpu`, `mixed_precision = :bf16`, `gradient_accumulation_steps`, `timeout_ms`, `cpu_kernels = :onednn`,
`cpu_memory = :cached`, ... The form with a block
waits for all ranks in its end, and closes the state.
""" State

function State(body::Function; options...)
    state = State(; options...)
    try
        returned = body(state)
        end_training(state)
        return returned
    finally
        tell()
        close(state)
    end
end
opened(state::State) = listen(state)

"""    println(state, line...): on the first rank of each host only"""
Base.println(state::State, part, parts...) = (LibAccel.accel_print(state, string(part, parts...)); nothing)
"""    on_main_process(state) do ... end: what it returns on rank 0, nothing elsewhere"""
on_main_process(body::Function, state::State) = is_main_process(state) ? body() : nothing
# With one process code for any rank runs.
is_here(state, own, rank) = own == rank || !is_distributed(state)

"""    on_process(state, rank) do ... end: what it returns on that rank, nothing elsewhere"""
on_process(body::Function, state::State, rank) = is_here(state, process_index(state), rank) ? body() : nothing
"""    on_local_process(state, rank) do ... end: the same by the rank within the host"""
on_local_process(body::Function, state::State, rank) = is_here(state, local_process_index(state), rank) ? body() : nothing

"""    split_range(state, length)

This rank's share of `1:length`."""
function split_range(state::State, length::Integer)
    first_item, last_item = Ref{Int64}(0), Ref{Int64}(0)
    LibAccel.accel_split_range(state, length, first_item, last_item)
    return first_item[]+1:last_item[]
end

describe(io::IO, state::State) = print(io, "State(rank ", process_index(state), " of ", num_processes(state), ", ",
    device_name(device(state)), mixed_precision(state) == :no ? ")" : ", $(mixed_precision(state)))")
