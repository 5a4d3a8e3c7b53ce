# Files: tensors, models, and whole training states.

"""    save(path, tensors; metadata = nothing)

Writes a map of tensors as a safetensors file: complete, or not at all."""
function save(path::AbstractString, tensors; metadata = nothing)
    lend(tensors) do map
        metadata === nothing ? LibAccel.accel_save(map, C_NULL, path) : lend(texts -> LibAccel.accel_save(map, texts, path), metadata)
    end
    return nothing
end
"""    save(state, path, tensors; metadata = nothing, on_each_node = false): the same, on the main process alone (or on that of each host)"""
function save(state::State, path::AbstractString, tensors; metadata = nothing, on_each_node::Bool = false)
    write(map, texts) = LibAccel.accel_save_on_main_process(state, map, texts, path, on_each_node)
    lend(map -> metadata === nothing ? write(map, C_NULL) : lend(texts -> write(map, texts), metadata), tensors)
    return nothing
end
"""    register_for_checkpointing!(state, name, save, load)

Adds an object of the program: `save()` gives its state, `load(state)` takes it back."""
function register_for_checkpointing!(state::State, name, save::Function, load::Function)
    LibAccel.accel_register_for_checkpointing(state, string(name), save_state_callback(), load_state_callback(), keep((save, load), state), destroy())
    return nothing
end
