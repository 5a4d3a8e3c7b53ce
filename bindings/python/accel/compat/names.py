"""The names of the reference, and the module here that each is in. They are resolved when they are asked for.

The reference spreads its names over many modules; which name is in which of them has no meaning here. So modules of the reference that
are not files here, and files here that lack some of its names, resolve all of the names in one way.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec

from . import availability, missing

_PACKAGE = __name__.partition(".")[0]
_HOMES = {
    "big_models.big_modeling": """attach_layerwise_casting_hooks cpu_offload cpu_offload_with_hook disk_offload dispatch_model
        load_checkpoint_and_dispatch""",
    "big_models.device_maps": """calculate_maximum_sizes check_device_map clean_device_map compute_module_sizes compute_module_total_buffer_size
        fallback_allocate get_balanced_memory get_max_layer_size get_max_memory get_module_leaves get_module_size_with_ties infer_auto_device_map""",
    "big_models.init_on_device": "init_empty_weights init_on_device",
    "big_models.module_tensors": "find_tied_parameters get_non_persistent_buffers named_module_tensors retie_parameters set_module_tensor_to_device",
    "big_models.offloaded_params": "align_module_device get_state_dict_offloaded_model has_offloaded_params",
    "big_models.weights": "load_checkpoint_in_model load_state_dict",
    "checkpoint.files": "clean_state_dict_for_safetensors load load_custom_state save save_custom_state",
    "checkpoint.fsdp_files": "load_fsdp_model load_fsdp_optimizer save_fsdp_model save_fsdp_optimizer",
    "commands.arguments": "CustomArgumentGroup CustomArgumentParser",
    "commands.config.config_args": "ClusterConfig load_config_from_file SageMakerConfig",
    "commands.config.default": "write_basic_config",
    "commands.config.subcommand_help": "DYNAMO_BACKENDS SubcommandHelpFormatter",
    "compat.constants": """BETA_CP_AVAILABLE_PYTORCH_VERSION BETA_SP_AVAILABLE_DEEPSPEED_VERSION BETA_TP_AVAILABLE_PYTORCH_VERSION
        BETA_TP_AVAILABLE_TRANSFORMERS_VERSION CUDA_DISTRIBUTED_TYPES DEEPSPEED_MULTINODE_LAUNCHERS DTENSOR_PYTORCH_VERSION
        ELASTIC_LOG_LINE_PREFIX_TEMPLATE_PYTORCH_VERSION FSDP2_PYTORCH_VERSION FSDP2_STATE_DICT_TYPE FSDP_AUTO_WRAP_POLICY FSDP_BACKWARD_PREFETCH
        FSDP_MODEL_NAME FSDP_PYTORCH_VERSION FSDP_SHARDING_STRATEGY FSDP_STATE_DICT_TYPE MITA_PROFILING_AVAILABLE_PYTORCH_VERSION MODEL_NAME
        OPTIMIZER_NAME PROFILE_PATTERN_NAME RNG_STATE_NAME SAFE_MODEL_NAME SAFE_WEIGHTS_INDEX_NAME SAFE_WEIGHTS_NAME SAFE_WEIGHTS_PATTERN_NAME
        SAGEMAKER_PARALLEL_EC2_INSTANCES SAGEMAKER_PYTHON_VERSION SAGEMAKER_PYTORCH_VERSION SAGEMAKER_TRANSFORMERS_VERSION SAMPLER_NAME
        SCALER_NAME SCHEDULER_NAME STR_OPERATION_TO_FUNC SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING TORCH_DISTRIBUTED_OPERATION_TYPES
        TORCH_DYNAMO_MODES TORCH_LAUNCH_PARAMS USE_TORCH_XLA WEIGHTS_INDEX_NAME WEIGHTS_NAME WEIGHTS_PATTERN_NAME
        XPU_PROFILING_AVAILABLE_PYTORCH_VERSION""",
    "compat.modeling": """extract_model_from_parallel get_model_tp_size get_module_children_bottom_up get_module_class_from_name
        has_4bit_bnb_layers has_ao_layers has_transformer_engine_layers is_peft_model is_torch_xpu_tensor model_has_dtensor""",
    "compat.other": "convert_bytes do_nothing get_pretty_name merge_dicts recursive_getattr wait_for_everyone",
    "data.data_loader": "skip_first_batches",
    "launch.command_lines": "prepare_deepspeed_cmd_env prepare_extend_env_parallelism_config prepare_multi_gpu_env prepare_simple_launcher_cmd_env",
    "launch.launchers": "debug_launcher notebook_launcher PrepareForLaunch test_launch",
    "modules.model_hooks": "add_hook_to_module ModelHook remove_hook_from_module remove_hook_from_submodules SequentialHook",
    "parallel.collectives": """all_reduce broadcast broadcast_object_list copy_tensor_to_devices DistributedOperationException gather
        gather_for_metrics gather_object gather_uneven pad_across_processes recv reduce send""",
    "parallel.deepspeed": "deepspeed_required DeepSpeedPlugin DummyOptim DummyScheduler get_active_deepspeed_plugin",
    "parallel.deepspeed_config": "HfDeepSpeedConfig",
    "parallel.fsdp": "disable_fsdp_ram_efficient_loading enable_fsdp_ram_efficient_loading FullyShardedDataParallelPlugin merge_fsdp_weights",
    "parallel.gathered_parameters": "GatheredParameters",
    "parallel.local_sgd": "LocalSGD",
    "parallel.parallelism_config": "ParallelismConfig TorchContextParallelConfig",
    "state.enums": """BaseEnum ComputeEnvironment CustomDtype DDPCommunicationHookType DistributedType EnumWithContains FP8BackendType LoggerType
        PrecisionType RNGType SageMakerDistributedType""",
    "state.environment": """clear_environment convert_dict_to_env_variables env_var_path_add get_free_port get_int_from_env is_port_in_use
        parse_choice_from_env parse_flag_from_env patch_environment purge_accelerate_environment str_to_bool""",
    "state.handlers": """AutocastKwargs DataLoaderConfiguration DistributedDataParallelKwargs GradientAccumulationPlugin GradScalerKwargs
        InitProcessGroupKwargs KwargsHandler PowerSGDKwargs ProjectConfiguration""",
    "state.job": "is_initialized",
    "state.machine": """are_libraries_initialized check_cuda_fp8_capability check_cuda_p2p_ib_support check_os_kernel compare_versions
        CPUInformation get_cpu_distributed_information get_current_device_type get_driver_version get_gpu_info is_torch_version
        override_numa_affinity set_numa_affinity""",
    "state.memory": "clear_device_cache find_executable_batch_size release_memory should_reduce_batch_size",
    "state.process": "AcceleratorState GradientState PartialState",
    "state.random": "set_seed synchronize_rng_state synchronize_rng_states",
    "tensors.sizes": "convert_file_size_to_int dtype_byte_size",
    "tensors.trees": """CannotPadNestedTensorWarning concatenate convert_outputs_to_fp32 convert_to_fp32 ConvertOutputsToFp32 find_batch_size
        find_device get_data_structure get_shape honor_type ignorant_find_batch_size initialize_tensors is_namedtuple is_tensor_information
        is_torch_tensor listify pad_input_tensors recursively_apply send_to_device slice_tensors TensorInformation""",
    "tracking": """AimTracker ClearMLTracker CometMLTracker DVCLiveTracker filter_trackers GeneralTracker get_available_trackers
        LOGGER_TYPE_TO_CLASS MLflowTracker on_main_process register_tracker_class SwanLabTracker TensorBoardTracker TrackioTracker WandBTracker""",
    "tracking.logging": "get_logger MultiProcessAdapter",
    "tracking.profiling": "ProfileKwargs ProfilerActivity",
    "tracking.progress": "tqdm",
    "training.accelerator": "Accelerator",
    "training.compilation": """compile_regions compile_regions_deepspeed compile_regions_fsdp2 DynamoBackend has_compiled_regions
        has_repeated_blocks is_compiled_module is_repeated_blocks TorchDynamoPlugin""",
}
# Modules that import torch.
_TORCH_HOMES = {
    "big_models.align_devices": """AlignDevicesHook attach_align_device_hook attach_align_device_hook_on_blocks attach_execution_device_hook
        get_state_dict_from_offload""",
    "big_models.layerwise_casting": "LayerwiseCastingHook",
    "big_models.meta_parameters": "ensure_weights_retied",
    "big_models.model_offload": "CpuOffload UserCpuOffloadHook",
    "big_models.offloaded_weights": """extract_submodules_state_dict load_offloaded_weight load_offloaded_weights offload_state_dict
        offload_weight OffloadedWeightsLoader PrefixedDataset save_offload_index""",
    "big_models.quantization_config": "BnbQuantizationConfig",
    "big_models.torch_module_tensors": "check_device_same check_tied_parameters_in_config check_tied_parameters_on_same_device id_tensor_storage",
    "data.batch_sampler_shard": "BatchSamplerShard",
    "data.dispatcher": "DataLoaderDispatcher",
    "data.iterable_dataset_shard": "IterableDatasetShard",
    "data.loader_adapter": "DataLoaderAdapter",
    "data.loop_state": "DataLoaderStateMixin",
    "data.prepare_data_loader": "prepare_data_loader",
    "data.torch_loader": "DataLoaderShard SkipDataLoader",
    "data.torch_samplers": "get_sampler SeedableRandomSampler SkipBatchSampler",
    "parallel.deepspeed_wrappers": "DeepSpeedEngineWrapper DeepSpeedOptimizerWrapper DeepSpeedSchedulerWrapper map_pytorch_optim_to_deepspeed",
    "parallel.fsdp2": """fsdp2_apply_ac fsdp2_canonicalize_names fsdp2_load_full_state_dict fsdp2_prepare_auto_wrap_policy fsdp2_prepare_model
        fsdp2_switch_optimizer_parameters get_fsdp2_grad_scaler get_parameters_from_modules""",
    "training.mixed_precision": "get_grad_scaler get_mixed_precision_context_manager",
    "training.torch_optimizer": "AcceleratedOptimizer",
    "training.torch_scheduler": "AcceleratedScheduler",
}
TORCH_NAMES = frozenset(" ".join(_TORCH_HOMES.values()).split())
HOMES = {**dict.fromkeys(availability.__all__, "compat.availability"),
         **{name: module for module, names in (_HOMES | _TORCH_HOMES).items() for name in names.split()}}

# Modules that are not files under their path: each has all names, or is the file behind ":".
_MODULES = """checkpointing commands.config.config_utils commands.utils inference memory_utils utils.ao utils.bnb utils.dataclasses utils.deepspeed
    utils.environment utils.fsdp_utils utils.imports utils.memory utils.offload utils.operations utils.random utils.torch_xla utils.tqdm
    utils.transformer_engine utils.versions accelerator:training.accelerator autograd:tensors.autograd big_modeling:big_models.big_modeling
    collectives:parallel.collectives commands.config.cluster:commands.config.config commands.config.sagemaker:commands.config.config
    data_loader:data.data_loader dataset:data.dataset datasets:data.datasets device:tensors.device dtypes:tensors.dtypes enums:state.enums
    errors:engine.errors functional:tensors.functional handlers:state.handlers hooks:modules.model_hooks launchers:launch.launchers
    local_sgd:parallel.local_sgd logging:tracking.logging lr_scheduler:training.lr_scheduler nn:modules.nn ops:tensors.ops optim:training.optim
    optimizer:training.optimizer parallelism_config:parallel.parallelism_config profiling:tracking.profiling progress:tracking.progress
    random:state.random sampler:data.sampler scheduler:training.scheduler utils.constants:compat.constants utils.launch:launch.command_lines
    utils.modeling:compat.modeling utils.other:compat.other utils.rich:compat.rich"""
MODULES = {**dict.fromkeys(missing.MODULES, ""), **{path: home for path, _, home in (entry.partition(":") for entry in _MODULES.split())}}


def find(name):
    """What a name of the reference means here; for what is missing, something that says so when it is used. None: it is no such name."""
    if name in HOMES:
        return getattr(importlib.import_module(f"{_PACKAGE}.{HOMES[name]}"), name)
    return missing.stand_in(name)


def resolver(module, main=None):
    """The __getattr__() of a module; of a folder that has the names of one of its modules, its `main` one, before all others."""
    path = module.partition(".")[2]

    def find_in_module(name):
        value = None
        if main is not None and name != main and importlib.util.find_spec(f"{module}.{name}") is None:
            value = getattr(importlib.import_module(f"{module}.{main}"), name, None)
        if value is None and f"{path}.{name}" in MODULES and name not in HOMES:
            value = importlib.import_module(f"{module}.{name}")
        elif value is None and path in missing.MODULES:
            value = missing.stand_in(name, path)
        elif value is None and HOMES.get(name) != path:  # it has not got its own name
            value = find(name)
        if value is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        setattr(sys.modules[module], name, value)
        return value

    return find_in_module


class _Finder:
    """Imports MODULES as if they were files."""

    def find_spec(self, fullname, path=None, target=None):
        package, _, path = fullname.partition(".")
        return ModuleSpec(fullname, self, is_package=True) if package == _PACKAGE and path in MODULES else None

    def create_module(self, spec):
        """The usual one."""

    def exec_module(self, module):
        name = module.__name__
        home = MODULES[name.partition(".")[2]]
        if home:
            module = sys.modules[name] = importlib.import_module(f"{_PACKAGE}.{home}")
        vars(module).setdefault("__getattr__", resolver(module.__name__))


def add_modules():
    """Makes `import accel.utils.operations` find what is no file."""
    sys.meta_path.append(_Finder())
