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
include("array.jl")
include("operator.jl")
include("overload.jl")
include("arithmetic.jl")
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
include("observing.jl")
include("generated/methods.jl")

export AccelError, Device, BFloat16, Map, Bytes, to_json, from_json, device_count, library_version, build_info, current_device
export Tensor, full, item, backward, to, view_array, dlpack
export Op, aten, schema, cross_entropy
export Model, add_hook!, to!, infer_auto_device_map
export map_tensors, equal
export on_main_process, on_process, on_local_process, split_range
export Mesh, Work, broadcast_async!, interruptible!, wait_for, then
export Optimizer
export Scheduler, curve
export Dataset, TensorDataset, RaggedDataset, WindowsDataset, PackedDataset, CsvDataset, StreamDataset, map_file, subset,
    as_stream, num_skipped
export Sampler, indices, DataLoader, total_batch_size, total_dataset_length
export backward_sum, local_sgd, clip_grad_norm!, register_comm_hook!, find_executable_batch_size, launch
export grad_ready!
export GeneralTracker, Tracker, log_figure
export profile, span, profile_table, merge_traces
export save, register_for_checkpointing!, register_random_state!, register_save_state_pre_hook!, register_load_state_pre_hook!,
    checkpoint_progress, load_state_dict, verify_checkpoint, list_checkpoints, show_checkpoint, compare_checkpoints, merge_weights

export RankLogger, ProgressBar

function __init__()
    LibAccel.before_error[] = throw_carried
    # Where Julia itself makes an exception of Ctrl-C: at the prompt, and in `julia -e`.
    interruptible!(isinteractive() || isempty(PROGRAM_FILE))
    atexit(note_the_end)
    Sweeper()
    return nothing
end

end # module
