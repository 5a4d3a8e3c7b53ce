"""Names of the reference that have no counterpart here yet. Who asks for one hears what is missing, and not only that a name is."""

_PARTS = {
    "fully sharded data parallelism": (
        "FullyShardedDataParallelPlugin", "disable_fsdp_ram_efficient_loading", "enable_fsdp_ram_efficient_loading",
        "ensure_weights_retied", "fsdp2_apply_ac", "fsdp2_canonicalize_names", "fsdp2_load_full_state_dict", "fsdp2_prepare_model",
        "fsdp2_switch_optimizer_parameters", "fsdp_plugin", "get_fsdp2_grad_scaler", "load_fsdp_model", "load_fsdp_optimizer",
        "merge_fsdp_weights", "save_fsdp_model", "save_fsdp_optimizer"),
    "DeepSpeed": (
        "DeepSpeedPlugin", "DeepSpeedSequenceParallelConfig", "DummyOptim", "DummyScheduler", "DeepSpeedEngineWrapper",
        "DeepSpeedOptimizerWrapper", "DeepSpeedSchedulerWrapper", "GatheredParameters", "HfDeepSpeedConfig", "deepspeed_plugin",
        "deepspeed_plugins", "deepspeed_required", "deepspeed_ulysses_dl_adapter", "get_active_deepspeed_plugin", "get_deepspeed_plugin",
        "map_pytorch_optim_to_deepspeed", "prepare_deepspeed_cmd_env", "select_deepspeed_plugin"),
    "Megatron-LM": (
        "AbstractTrainStep", "BertTrainStep", "GPTTrainStep", "MegatronEngine", "MegatronLMDummyDataLoader",
        "MegatronLMDummyScheduler", "MegatronLMOptimizerWrapper", "MegatronLMPlugin", "MegatronLMSchedulerWrapper", "T5TrainStep",
        "add_model_config_to_megatron_parser", "avg_losses_across_data_parallel_group", "gather_across_data_parallel_groups",
        "megatron_lm_initialize", "megatron_lm_plugin", "megatron_lm_prepare_data_loader", "megatron_lm_prepare_model_optimizer_scheduler",
        "megatron_lm_prepare_optimizer", "megatron_lm_prepare_scheduler"),
    "tensor and context parallelism": (
        "TorchContextParallelConfig", "TorchTensorParallelConfig", "TorchTensorParallelPlugin", "get_model_tp_size",
        "maybe_context_parallel", "torch_tp_plugin"),
    "pipeline parallelism": ("prepare_pippy",),
    "models that are larger than a device": (
        "OffloadedWeightsLoader", "PrefixedDataset", "align_module_device", "calculate_maximum_sizes", "check_device_map",
        "check_tied_parameters_in_config", "check_tied_parameters_on_same_device", "compute_module_sizes", "cpu_offload",
        "cpu_offload_with_hook", "disk_offload", "dispatch_model", "extract_submodules_state_dict", "find_tied_parameters",
        "get_balanced_memory", "get_max_layer_size", "get_max_memory", "has_offloaded_params", "id_tensor_storage", "infer_auto_device_map",
        "init_empty_weights", "init_on_device", "load_checkpoint_and_dispatch", "load_checkpoint_in_model", "load_offloaded_weight",
        "load_offloaded_weights", "load_state_dict", "named_module_tensors", "offload_state_dict", "offload_weight", "retie_parameters",
        "save_offload_index", "set_module_tensor_to_device"),
    "quantization": ("BnbQuantizationConfig", "load_and_quantize_model"),
    "computing in 8-bit floating point": (
        "AORecipeKwargs", "FP8RecipeKwargs", "MSAMPRecipeKwargs", "TERecipeKwargs", "apply_fp8_autowrap", "contextual_fp8_autocast", "convert_model", "convert_model_to_fp8_ao",
        "filter_first_and_last_linear_layers", "torchao_required"),
    "processors and memory close to a GPU": ("set_numa_affinity", "override_numa_affinity"),
    "the compilation of models": (
        "DynamoBackend", "TorchDynamoPlugin", "compile_regions", "compile_regions_deepspeed", "compile_regions_fsdp2", "dynamo_backend",
        "dynamo_plugin"),
    "profiling": ("PROFILE_PATTERN_NAME", "ProfileKwargs", "profile"),
    "the configuration file of the launcher": ("write_basic_config",),
    "training on TPUs": ("install_xla", "prepare_tpu"),
    "training with SageMaker": ("prepare_sagemager_args_inputs",),
    "a tracker for this service": (
        "AimTracker", "ClearMLTracker", "CometMLTracker", "DVCLiveTracker", "MLflowTracker", "SwanLabTracker", "TensorBoardTracker",
        "TrackioTracker", "WandBTracker"),
}
# What has another form here.
_INSTEAD = {
    "PrepareForLaunch": "notebook_launcher() and debug_launcher() start processes",
    "get_grad_scaler": "the engine scales losses; give Accelerator(kwargs_handlers=[GradScalerKwargs(...)])",
    "get_mixed_precision_context_manager": "use Accelerator.autocast()",
    "is_torch_version": "its LibTorch has the version that libaccel was built for; compare_versions() compares those of packages",
    "prepare_multi_gpu_env": "the program `accel launch` starts ranks",
    "prepare_simple_launcher_cmd_env": "the program `accel launch` starts ranks",
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}


def text(name):
    """What to say of a name; None where it is not known either."""
    if name in _INSTEAD:
        return f"{name} is not in libaccel: {_INSTEAD[name]}"
    return f"{name}: {_PART_OF[name]} is not in libaccel yet" if name in _PART_OF else None


def check_name(name):
    """For the __getattr__() of modules: an ImportError is what `from ... import` passes on."""
    if text(name):
        raise ImportError(text(name))


def check_settings(settings):
    """Refuses settings of what is missing, which may be there as None."""
    for name, value in settings.items():
        if name not in _PART_OF:
            raise TypeError(f"there is no setting {name!r}")
        if value is not None:
            raise NotImplementedError(text(name))
