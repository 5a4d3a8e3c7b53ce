# SPDX-License-Identifier: Apache-2.0
# Files: tensors, models, and whole training states.

"""    save(path, value; metadata = nothing, options...)

Writes a value to a file: complete, or not at all. A map of tensors becomes a safetensors file, with `safe_serialization = false` any value
a file of `torch.save()`."""
save(path::AbstractString, value; metadata = nothing, options...) = lend(value) do lent
    lend_or_null(metadata) do texts
        with_options(given -> LibAccel.accel_save(lent, texts, path, given), LibAccel.accel_save_options_t; options...)
        nothing
    end
end
"""    save(state, path, value; metadata = nothing, options...): the same, on the main process alone (or on that of each host)"""
save(state::State, path::AbstractString, value; metadata = nothing, options...) = lend(value) do lent
    lend_or_null(metadata) do texts
        with_options(given -> LibAccel.accel_save_on_main_process(state, lent, texts, path, given), LibAccel.accel_save_options_t; options...)
        nothing
    end
end
lend_or_null(use::Function, value) = value === nothing ? use(C_NULL) : lend(use, value)

"""    register_for_checkpointing!(state, name, save, load)

Adds an object of the program: `save()` gives its state, `load(state)` takes it back. With `nothing` as name it has a number."""
function register_for_checkpointing!(state::State, name, save::Function, load::Function)
    file = name === nothing ? C_NULL : string(name)
    LibAccel.accel_register_for_checkpointing(state, file, save_state_callback(), load_state_callback(), keep((save, load), state), destroy())
    return nothing
end

"""    register_random_state!(state, name, save, load)

Adds a generator of random numbers of the program, which each rank saves for itself."""
function register_random_state!(state::State, name, save::Function, load::Function)
    LibAccel.accel_register_random_state(state, string(name), save_state_callback(), load_state_callback(), keep((save, load), state), destroy())
    return nothing
end

"""    register_save_state_pre_hook!(hook, state)
    register_load_state_pre_hook!(hook, state)

`hook(models, folder)` runs before a training state is saved or loaded. `models` has the weights, or the number, of each prepared model; a
list in its place leaves those out whose item is `nothing`. Gives the number for `remove_checkpoint_hook!()`."""
register_save_state_pre_hook!(hook::Function, state::State) =
    (id = Ref{Int64}(); LibAccel.accel_register_save_state_pre_hook(state, checkpoint_hook_callback(), keep(hook, state), destroy(), id); id[])
register_load_state_pre_hook!(hook::Function, state::State) =
    (id = Ref{Int64}(); LibAccel.accel_register_load_state_pre_hook(state, checkpoint_hook_callback(), keep(hook, state), destroy(), id); id[])
@doc (@doc register_save_state_pre_hook!) register_load_state_pre_hook!

"""    checkpoint_progress(state): (bytes written, bytes in all, about) of the asynchronous save that is under way; (0, 0) when none is"""
function checkpoint_progress(state::State)
    written, total = Ref{Int64}(), Ref{Int64}()
    LibAccel.accel_checkpoint_progress(state, written, total)
    return written[], total[]
end
