# The program's seat in the job.

const PRECISIONS = (no = 0, fp16 = 1, bf16 = 2, fp8 = 3)
const SCHEDULER_STEPS = (per_batch = 0, per_update = 1)
const CPU_KERNELS = (auto = 0, default = 1, onednn = 2)
const CPU_MEMORY = (auto = 0, default = 1, cached = 2)

"""The number of a name: constants of C are symbols in Julia."""
number_of(names::NamedTuple, name::Symbol) = haskey(names, name) ? Int32(names[name]) :
    refuse(":", name, " is not known; expected one of ", join((":$each" for each in keys(names)), ", "))
number_of(names::NamedTuple, name::AbstractString) = number_of(names, Symbol(name))
number_of(::NamedTuple, number) = number
name_of(names::NamedTuple, number) = keys(names)[number + 1]

@doc """
    State(; options...)
    State(; options...) do state ... end

Joins the job: rank, device and precision, from the options, then from the environment that the launcher set. Options are those of
`accel_state_options_t`: `cpu`, `mixed_precision = :bf16`, `gradient_accumulation_steps`, `timeout_ms`, `cpu_kernels = :onednn`,
`cpu_memory = :cached`, ... The form with a block
waits for all ranks in its end, and closes the state.
""" State

function State(; mixed_precision = LibAccel.ACCEL_UNSET, scheduler_steps = LibAccel.ACCEL_UNSET,
               cpu_kernels = LibAccel.ACCEL_UNSET, cpu_memory = LibAccel.ACCEL_UNSET, options...)
    with_options(LibAccel.accel_state_options_t; mixed_precision = number_of(PRECISIONS, mixed_precision),
                 scheduler_steps = number_of(SCHEDULER_STEPS, scheduler_steps),
                 cpu_kernels = number_of(CPU_KERNELS, cpu_kernels), cpu_memory = number_of(CPU_MEMORY, cpu_memory),
                 options...) do given
        made(State, out -> LibAccel.accel_state_create(given, out))
    end
end
function State(body::Function; options...)
    state = State(; options...)
    try
        returned = body(state)
        end_training(state)
        return returned
    finally
        close(state)
    end
end

"""The rank of this process, from 0."""
process_index(state::State) = Int(LibAccel.accel_process_index(state))
"""The number of processes."""
num_processes(state::State) = Int(LibAccel.accel_num_processes(state))
"""The rank among those of this host, from 0."""
local_process_index(state::State) = Int(LibAccel.accel_local_process_index(state))
"""The number of ranks of this host."""
local_num_processes(state::State) = Int(LibAccel.accel_local_num_processes(state))
"""Whether this is rank 0."""
is_main_process(state::State) = LibAccel.accel_is_main_process(state) == 1
"""Whether this is the first rank of its host."""
is_local_main_process(state::State) = LibAccel.accel_is_local_main_process(state) == 1
"""Whether this is the last rank."""
is_last_process(state::State) = LibAccel.accel_is_last_process(state) == 1
device(state::State) = LibAccel.accel_device(state)
"""What carries the collectives: "ucx", "nccl", or "" for one process."""
backend(state::State) = unsafe_string(LibAccel.accel_backend(state))
"""The precision of the forward: :no, :fp16, :bf16, :fp8."""
mixed_precision(state::State) = name_of(PRECISIONS, LibAccel.accel_mixed_precision(state))
"""Whether several processes work together."""
is_distributed(state::State) = LibAccel.accel_use_distributed(state) == 1
"""Whether collectives are checked, as `ACCELERATE_DEBUG_MODE` asks for."""
is_debug(state::State) = LibAccel.accel_debug(state) == 1
"""Makes the state's device the current one of this thread of the operating system; there is nothing to do on the CPU."""
use_device!(state::State) = (LibAccel.accel_set_device(state); state)
"""How the ranks work together: :no, :multi_cpu or :multi_gpu."""
distributed_type(state::State) = name_of((no = 0, multi_cpu = 1, multi_gpu = 2), LibAccel.accel_distributed_type(state))
"""Every setting with its value and where it came from, one a line."""
settings(state::State) = text(out -> LibAccel.accel_state_describe(state, out))
"""What is really active: device, precision, accumulation, and each prepared object; one a line."""
active(state::State) = text(out -> LibAccel.accel_describe(state, out))

"""    println(state, line...): on the first rank of each host only"""
Base.println(state::State, part, parts...) = (LibAccel.accel_print(state, string(part, parts...)); nothing)
"""    on_main_process(state) do ... end: what it returns on rank 0, nothing elsewhere"""
on_main_process(body::Function, state::State) = is_main_process(state) ? body() : nothing
"""    on_process(state, rank) do ... end: what it returns on that rank, nothing elsewhere"""
on_process(body::Function, state::State, rank) = LibAccel.accel_on_process(state, rank) == 1 ? body() : nothing
"""    on_local_process(state, rank) do ... end: the same by the rank within the host"""
on_local_process(body::Function, state::State, rank) = LibAccel.accel_on_local_process(state, rank) == 1 ? body() : nothing
"""    main_process_first(state) do ... end: the other ranks after it"""
main_process_first(body::Function, state::State) = scoped(body, out -> LibAccel.accel_main_process_first_begin(state, out))
"""    local_main_process_first(state) do ... end: the other ranks of the host after its first one"""
local_main_process_first(body::Function, state::State) = scoped(body, out -> LibAccel.accel_local_main_process_first_begin(state, out))

"""    split_range(state, length)

This rank's share of `1:length`."""
function split_range(state::State, length::Integer)
    first_item, last_item = Ref{Int64}(0), Ref{Int64}(0)
    LibAccel.accel_split_range(state, length, first_item, last_item)
    return first_item[]+1:last_item[]
end
"""This rank's share of a list, of the rows of a tensor, or of each member of a map."""
split_between_processes(state::State, inputs; apply_padding = false) =
    result(out -> lend(value -> LibAccel.accel_split_between_processes(state, value, apply_padding, out), inputs))

"""Raises a flag that `check_trigger` will see on all ranks."""
set_trigger!(state::State) = (LibAccel.accel_set_trigger(state); nothing)
"""Whether any rank raised the flag; lowers it."""
check_trigger(state::State) = output(out -> LibAccel.accel_check_trigger(state, out), Int32) != 0
"""Leaves the job without waiting for the others; collectives fail afterwards."""
destroy_process_group(state::State) = (LibAccel.accel_destroy_process_group(state); nothing)
"""Waits for all ranks, then leaves the job. The last call of a program."""
end_training(state::State) = (LibAccel.accel_end_training(state); nothing)

"""Whether this micro-batch ends a group, so that gradients are exchanged."""
sync_gradients(state::State) = LibAccel.accel_sync_gradients(state) == 1
"""    sync_gradients!(state, sync): whether gradients are exchanged from here on, for loops that count for themselves"""
sync_gradients!(state::State, sync::Bool) = (LibAccel.accel_set_sync_gradients(state, sync); nothing)
"""Whether the batch in hand is the last one of its loader."""
end_of_dataloader(state::State) = LibAccel.accel_end_of_dataloader(state) == 1
"""Rows of the last global batch that are no repetition; 0 when it is full, -1 when unknown."""
remainder(state::State) = LibAccel.accel_remainder(state)
"""Micro-batches of a group."""
gradient_accumulation_steps(state::State) = LibAccel.accel_gradient_accumulation_steps(state)
"""Sets the micro-batches of a group."""
gradient_accumulation_steps!(state::State, steps) = (LibAccel.accel_set_gradient_accumulation_steps(state, steps); nothing)
"""How micro-batches are put together: a `Map` of `num_steps`, `adjust_scheduler`, `sync_with_dataloader`, `sync_each_batch`, `true_divisor`."""
gradient_accumulation(state::State) = result(out -> LibAccel.accel_gradient_accumulation(state, out))::Map
"""    gradient_accumulation!(state; settings...): those that are given change, from the next micro-batch on"""
gradient_accumulation!(state::State; settings...) =
    with_options(LibAccel.accel_gradient_accumulation_options_t; settings...) do given
        LibAccel.accel_set_gradient_accumulation(state, given)
        nothing
    end
"""Whether a loop over a prepared loader is under way."""
in_dataloader(state::State) = LibAccel.accel_in_dataloader(state) == 1

"""    seed!(state, seed; device_specific = false, deterministic = false)

Seeds the generators of all devices, and those of `add_seed_callback!`."""
seed!(state::State, seed; device_specific = false, deterministic = false) =
    (LibAccel.accel_set_seed(state, seed, device_specific, deterministic); nothing)
"""    add_seed_callback!(state) do seed ... end

Has `seed!` seed one more generator, for example Julia's: `Random.seed!(seed)`."""
add_seed_callback!(seed::Function, state::State) =
    (LibAccel.accel_add_seed_callback(state, seed_callback(), keep(seed, state), destroy()); nothing)

"""    Generator(seed; device = "cpu")

A generator with the numbers of torch.Generator."""
Generator(seed::Integer; device = CPU) = made(Generator, out -> LibAccel.accel_generator_create(seed, as_device(device), out))
seed!(generator::Generator, seed) = (LibAccel.accel_generator_set_seed(generator, seed); generator)
"""    generator_state(generator), generator_state!(generator, state): where it stands; `nothing` is the CPU's default one"""
generator_state(generator = nothing) = made(Tensor, out -> LibAccel.accel_generator_state(something(generator, C_NULL), out))
"""See `generator_state`."""
generator_state!(generator, state::Tensor) =
    (LibAccel.accel_generator_set_state(something(generator, C_NULL), state); generator)
"""    synchronize_rng_states!(state, "torch,cuda,generator"; generator): all ranks get the states of rank 0's"""
synchronize_rng_states!(state::State, rng_types; generator = nothing) =
    (LibAccel.accel_synchronize_rng_states(state, rng_types, something(generator, C_NULL)); nothing)

describe(io::IO, state::State) = print(io, "State(rank ", process_index(state), " of ", num_processes(state), ", ",
    device_name(device(state)), mixed_precision(state) == :no ? ")" : ", $(mixed_precision(state)))")
