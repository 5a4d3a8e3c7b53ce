"""Names of the reference that have no counterpart here yet. They can be imported; using one raises NotImplementedError that says what is missing."""

_PARTS = {
    "this part of DeepSpeed": "DeepSpeedSequenceParallelConfig",
    "Megatron-LM": """
        AbstractTrainStep BertTrainStep GPTTrainStep MODEL_CONFIGS_TO_MEGATRON_PARSERS MegatronEngine MegatronLMDummyDataLoader
        MegatronLMDummyScheduler MegatronLMOptimizerWrapper MegatronLMPlugin MegatronLMSchedulerWrapper T5TrainStep
        add_model_config_to_megatron_parser avg_losses_across_data_parallel_group finish_mpu_init gather_across_data_parallel_groups
        megatron_lm_initialize megatron_lm_plugin megatron_lm_prepare_data_loader megatron_lm_prepare_model_optimizer_scheduler
        megatron_lm_prepare_optimizer megatron_lm_prepare_scheduler model_provider_func parse_bert_config parse_glm4_moe_config
        parse_gpt2_config parse_llama_config parse_t5_config""",
    "tensor and context parallelism": "TorchTensorParallelConfig TorchTensorParallelPlugin torch_tp_plugin",
    "pipeline parallelism": "build_pipeline find_pippy_batch_size generate_device_map pippy_forward prepare_pippy",
    "quantization": """
        get_keys_to_not_convert get_parameter_device get_quantized_model_device_map load_and_quantize_model
        quantize_and_offload_8bit replace_with_bnb_layers""",
    "computing in 8-bit floating point": """
        AORecipeKwargs AmaxComputeAlgorithm Backend FP8Format FP8RecipeKwargs MSAMPRecipeKwargs OptLevel TERecipeKwargs apply_fp8_autowrap
        contextual_fp8_autocast convert_model convert_model_to_fp8_ao filter_first_and_last_linear_layers filter_linear_layers
        find_first_last_linear_layers setup_fp8_env torchao_required""",
    "the compilation of models by the Accelerator": "dynamo_backend dynamo_plugin",
    "training on TPUs": "MpDeviceLoaderWrapper install_xla prepare_tpu",
    "training with SageMaker": "prepare_sagemager_args_inputs",
}
# What has another form here.
_INSTEAD = {
    "ARGUMENT_KEY_MAPPING": "`accel to-fsdp2` and convert_config_to_fsdp2() convert",
    "ARGUMENT_VALUE_MAPPING": "`accel to-fsdp2` and convert_config_to_fsdp2() convert",
    "ConversionStatus": "`accel to-fsdp2` says why a setting is left out",
    "Prepared.begin": "its loop begins with iter(), also in GradientState",
    "Prepared.end": "its loop ends with its batches, or when it is left",
    "Prepared.get_sampler": "the order is the engine's; `sampler` is the one that the loader was made with",
    "Prepared.reset": "its loop begins with iter(), also in GradientState",
    "Prepared.set_sampler": "make a DataLoader with the other sampler and prepare that",
    "SharedDict": "PartialState() and AcceleratorState() show the state of the engine",
    "TENSOR_INT_TO_DTYPE": "the engine tells the other ranks the kinds of tensors",
    "TENSOR_TYPE_TO_INT": "the engine tells the other ranks the kinds of tensors",
    "TORCH_SAFE_GLOBALS": "use torch.serialization.add_safe_globals()",
    "ThreadLocalSharedDict": "PartialState() and AcceleratorState() show the state of the engine",
    "chained_operation": "the engine checks what the ranks give",
    "gather_tensor_shape": "gather_object([tensor.shape]) gathers shapes",
    "get_class_name": "use type(thing).__name__",
    "load_accelerator_state": "use Accelerator.load_state()",
    "move_to_device": "use send_to_device()",
    "patch_optimizer_step": "a prepared optimizer knows whether it stepped: step_was_skipped",
    "save_accelerator_state": "use Accelerator.save_state()",
    "torch_version": "use torch.__version__, or is_torch_version()",
    "verify_operation": "the engine checks what the ranks give",
}
_COMMAND = "the program `accel` asks its questions on the terminal itself (accel config)"
# Modules all of whose names are missing.
MODULES = {
    "commands.menu": "",
    "commands.menu.cursor": "CursorInfo hide hide_cursor show_cursor",
    "commands.menu.helpers": "CURSOR_TO_CHAR Direction clear_line forceWrite linebreak move_cursor reset_cursor writeColor",
    "commands.menu.input": "KeyHandler mark mark_multiple register",
    "commands.menu.keymap": "ARROW_KEY_FLAG KEYMAP WIN_CH_BUFFER WIN_KEYMAP get_character get_raw_chars",
    "commands.menu.selection_menu": "BulletMenu in_colab",
    "utils.megatron_lm": """AbstractTrainStep BertTrainStep GPTTrainStep MegatronEngine MegatronLMDummyDataLoader MegatronLMDummyScheduler
        MegatronLMOptimizerWrapper MegatronLMSchedulerWrapper T5TrainStep avg_losses_across_data_parallel_group finish_mpu_init
        gather_across_data_parallel_groups initialize model_provider_func prepare_data_loader prepare_model_optimizer_scheduler
        prepare_optimizer prepare_scheduler""",
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names.split()}


def text(name):
    """What to say of a name; None where it is not known either."""
    if name in _INSTEAD:
        return f"{name} is not in libaccel: {_INSTEAD[name]}"
    return f"{name}: {_PART_OF[name]} is not in libaccel yet" if name in _PART_OF else None


class _Missing(type):
    """The class of what stands for missing names: these are classes, so that programs can name them in isinstance() and derive from them."""

    def __call__(cls, *_, **__):
        raise NotImplementedError(cls.what)

    def __getattr__(cls, name):
        raise AttributeError(cls.what)


def stand_in(name, module=None):
    """What programs can import under a missing name, of one of MODULES if given. None: the name is not known."""
    if module in MODULES:
        part = "Megatron-LM is not in libaccel yet" if module == "utils.megatron_lm" else _COMMAND
        what = f"{name}: {part}" if name in MODULES[module].split() else None
    else:
        what = text(name)
    return None if what is None else _Missing(name, (), {"what": what, "__module__": __package__, "__doc__": what})


def check_settings(**settings):
    """Refuses settings of what is missing, which may be there as None."""
    for name, value in settings.items():
        if value is not None:
            raise NotImplementedError(text(name))
