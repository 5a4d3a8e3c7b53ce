"""Names of the reference that have no counterpart here yet. Who asks for one hears what is missing, and not only that a name is."""

_PARTS = {
    "fully sharded data parallelism": (
        "FullyShardedDataParallelPlugin", "fsdp_plugin", "merge_fsdp_weights", "save_fsdp_model", "load_fsdp_model", "save_fsdp_optimizer",
        "load_fsdp_optimizer"),
    "DeepSpeed": (
        "DeepSpeedPlugin", "DeepSpeedSequenceParallelConfig", "DummyOptim", "DummyScheduler", "HfDeepSpeedConfig", "deepspeed_plugin",
        "deepspeed_plugins", "deepspeed_ulysses_dl_adapter", "get_active_deepspeed_plugin"),
    "Megatron-LM": ("MegatronLMPlugin", "megatron_lm_plugin"),
    "tensor and context parallelism": (
        "ParallelismConfig", "TorchContextParallelConfig", "TorchTensorParallelConfig", "TorchTensorParallelPlugin",
        "maybe_context_parallel", "parallelism_config", "torch_tp_plugin"),
    "pipeline parallelism": ("prepare_pippy",),
    "models that are larger than a device": (
        "cpu_offload", "cpu_offload_with_hook", "disk_offload", "dispatch_model", "infer_auto_device_map", "init_empty_weights",
        "init_on_device", "load_checkpoint_and_dispatch", "load_checkpoint_in_model"),
    "quantization": ("BnbQuantizationConfig", "load_and_quantize_model"),
    "processors and memory close to a GPU": ("set_numa_affinity", "override_numa_affinity"),
    "the compilation of models": ("DynamoBackend", "TorchDynamoPlugin", "compile_regions", "dynamo_backend", "dynamo_plugin"),
    "profiling": ("ProfileKwargs", "profile"),
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}


def text(name):
    """What to say of a name; None where it is not known either."""
    return f"{name}: {_PART_OF[name]} is not in libaccel yet" if name in _PART_OF else None


def check_name(name):
    """For the __getattr__() of modules: an ImportError is what `from ... import` passes on."""
    if name in _PART_OF:
        raise ImportError(text(name))


def check_settings(settings):
    """Refuses settings of what is missing, which may be there as None."""
    for name, value in settings.items():
        if name not in _PART_OF:
            raise TypeError(f"there is no setting {name!r}")
        if value is not None:
            raise NotImplementedError(text(name))
