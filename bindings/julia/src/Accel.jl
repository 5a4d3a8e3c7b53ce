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
include("library.jl")

export AccelError, Device, BFloat16, Map, Bytes, to_json, from_json, device_count, library_version, build_info, is_available
export Tensor, full, item, gradient, backward, to, contiguous, iscontiguous, requires_grad, requires_grad!, view_array, dlpack, device
export Op, aten, schema, cross_entropy, no_grad, enable_grad, inference_mode
export Model, Linear, Embedding, LayerNorm, RMSNorm, Dropout, Activation, Attention, Conv2d, BatchNorm, Sequential, from_config,
    load_torchscript, set_forward!, add_hook!, remove_hook!, no_grad!, add_parameter!, add_buffer!, add_child!, tie!, child, kind, parameters, buffers, modules, children_bottom_up,
    num_parameters, state_dict, load_state_dict!, to!, train!, istraining
export map_tensors, concatenate, listify, slice_tensors, pad_input_tensors, equal, send_to_device, convert_to_fp32, find_batch_size
export State, process_index, num_processes, local_process_index, local_num_processes, is_main_process, is_local_main_process,
    is_last_process, backend, mixed_precision, settings, active, distributed_type, on_main_process, on_process, on_local_process, is_distributed, is_debug, use_device!, main_process_first, local_main_process_first,
    split_range, split_between_processes, set_trigger!, check_trigger, destroy_process_group, end_training, sync_gradients, sync_gradients!, end_of_dataloader, remainder,
    gradient_accumulation_steps, gradient_accumulation_steps!, gradient_accumulation, gradient_accumulation!, in_dataloader, seed!, add_seed_callback!, Generator, generator_state,
    generator_state!, synchronize_rng_states!
export Work, gather, gather_async, gather_uneven, gather_uneven_async, gather_for_metrics, gather_for_metrics_async, gather_object,
    gather_object_async, reduce_async, broadcast_async!, broadcast_objects, broadcast_objects_async, pad_across_processes,
    pad_across_processes_async, all_reduce!, all_reduce_async!, all_gather!, reduce_scatter!, all_to_all!, scatter!, send_tensor, recv_tensor!,
    interruptible!, wait_for_everyone, wait_for, then, progress, group, split_group, shrink_group, flight_record
export Optimizer, AdamW, Adam, SGD, Adagrad, RMSprop, Adamax, NAdam, RAdam, Lion, LAMB, Adafactor, Muon, AdamW8bit, LOMO, AdaLomo, ScheduleFreeSGD,
    ScheduleFreeAdamW, add_group!,
    step!, zero_grad!, step_was_skipped, num_groups, state_bytes, learning_rate, learning_rate!, setting, setting!, update_precision!
export Scheduler, chained, one_after_the_other, curve
export Dataset, TensorDataset, RaggedDataset, WindowsDataset, PackedDataset, ArrowDataset, SafetensorsDataset, TextDataset, LinesDataset,
    JsonLinesDataset, CsvDataset, ImageDataset, StreamDataset, map_file, subset, as_stream, num_skipped
export Sampler, SequentialSampler, RandomSampler, RandomDraws, WeightedSampler, SubsetSampler, LengthGroupedSampler, DistributedSampler,
    indices, DataLoader, set_epoch!, current_epoch, valid_rows, total_batch_size, total_dataset_length, even_batches!, skip_first_batches
export prepare, backward_sum, lomo_backward, no_sync, trigger_sync_in_backward, join_uneven_inputs, autocast, local_sgd, clip_grad_norm!,
    clip_grad_value!, unscale_gradients!, loss_scale, set_grad_scaler!, set_autocast!, unwrap_model, register_comm_hook!, find_executable_batch_size,
    free_memory!, step_report, memory_report, empty_cache!, float32_matmul_precision!
export Parameters, grad_ready!, synchronize!, synchronize_async!
export save, load, load_metadata, save_model, save_state, load_state!, register_for_checkpointing!

function __init__()
    LibAccel.before_error[] = throw_carried
    # Where Julia itself makes an exception of Ctrl-C: at the prompt, and in `julia -e`.
    interruptible!(isinteractive() || isempty(PROGRAM_FILE))
    atexit(note_the_end)
    Sweeper()
    return nothing
end

end # module
