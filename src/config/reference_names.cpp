// SPDX-License-Identifier: Apache-2.0
#include "config/reference_names.hpp"

#include <algorithm>
#include <iterator>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "config/generated/option_tables.hpp"

namespace accel {
namespace {

using Kind = ReferenceKind;
using File = ReferenceFile;

constexpr const char* kDistributedTypes =
    "NO|MULTI_CPU|MULTI_GPU|MULTI_NPU|MULTI_MLU|MULTI_SDAA|MULTI_MUSA|MULTI_XPU|MULTI_HPU|MULTI_NEURON|DEEPSPEED|FSDP|"
    "XLA|MEGATRON_LM";

constexpr ReferenceName kNames[] = {
    {"", "compute_environment", Kind::kText, File::kAny, "\"LOCAL_MACHINE\"", "LOCAL_MACHINE|AMAZON_SAGEMAKER"},
    {"", "distributed_type", Kind::kText, File::kCluster, nullptr, kDistributedTypes},
    {"", "distributed_type", Kind::kText, File::kSageMaker, nullptr, "NO|DATA_PARALLEL|MODEL_PARALLEL"},
    {"", "mixed_precision", Kind::kText, File::kAny, "null", "no|fp16|bf16|fp8", &option_tables::state_options,
     "mixed_precision"},
    {"", "use_cpu", Kind::kFlag, File::kAny, "false", nullptr, &option_tables::state_options, "cpu"},
    {"", "debug", Kind::kFlag, File::kAny, "false", nullptr, &option_tables::state_options, "debug"},
    {"", "ec2_instance_type", Kind::kText, File::kSageMaker},
    {"", "iam_role_name", Kind::kText, File::kSageMaker},
    {"", "image_uri", Kind::kText, File::kSageMaker, "null"},
    {"", "profile", Kind::kText, File::kSageMaker, "null"},
    {"", "region", Kind::kText, File::kSageMaker, "\"us-east-1\""},
    {"", "num_processes", Kind::kInteger, File::kCluster, "-1"},
    {"", "machine_rank", Kind::kInteger, File::kCluster, "0"},
    {"", "num_machines", Kind::kInteger, File::kAny, "1"},
    {"", "gpu_ids", Kind::kText, File::kCluster, "null"},
    {"", "gpu_ids", Kind::kText, File::kSageMaker, "\"all\""},
    {"", "base_job_name", Kind::kText, File::kSageMaker, "\"accelerate-sagemaker-1\""},
    {"", "pytorch_version", Kind::kText, File::kSageMaker, "\"1.10.2\""},
    {"", "transformers_version", Kind::kText, File::kSageMaker, "\"4.17.0\""},
    {"", "py_version", Kind::kText, File::kSageMaker, "\"py38\""},
    {"", "sagemaker_inputs_file", Kind::kText, File::kSageMaker, "null"},
    {"", "sagemaker_metrics_file", Kind::kText, File::kSageMaker, "null"},
    {"", "additional_args", Kind::kAny, File::kSageMaker, "null"},
    {"", "main_process_ip", Kind::kText, File::kCluster, "null"},
    {"", "main_process_port", Kind::kInteger, File::kCluster, "null"},
    {"", "rdzv_backend", Kind::kText, File::kCluster, "\"static\""},
    {"", "same_network", Kind::kFlag, File::kCluster, "false"},
    {"", "main_training_function", Kind::kText, File::kCluster, "\"main\""},
    {"", "enable_cpu_affinity", Kind::kFlag, File::kAny, "false", nullptr, &option_tables::state_options,
     "cpu_affinity"},
    {"", "fp8_config", Kind::kSection, File::kCluster, "{}"},
    {"", "deepspeed_config", Kind::kSection, File::kCluster, "{}"},
    {"", "fsdp_config", Kind::kSection, File::kCluster, "{}"},
    {"", "parallelism_config", Kind::kSection, File::kCluster, "{}"},
    {"", "megatron_lm_config", Kind::kSection, File::kCluster, "{}"},
    {"", "mpirun_config", Kind::kSection, File::kCluster, "{}"},
    {"", "downcast_bf16", Kind::kAny, File::kCluster, "false"},
    {"", "tpu_name", Kind::kText, File::kCluster, "null"},
    {"", "tpu_zone", Kind::kText, File::kCluster, "null"},
    {"", "tpu_use_cluster", Kind::kFlag, File::kCluster, "false"},
    {"", "tpu_use_sudo", Kind::kFlag, File::kCluster, "false"},
    {"", "command_file", Kind::kText, File::kCluster, "null"},
    {"", "commands", Kind::kList, File::kCluster, "null"},
    {"", "tpu_vm", Kind::kList, File::kCluster, "null"},
    {"", "tpu_env", Kind::kList, File::kCluster, "null"},
    {"", "dynamo_config", Kind::kSection, File::kAny, "{}"},
    // Names of older versions are read, and converted where they still mean something.
    {"", "fp16", Kind::kFlag},
    {"", "dynamo_backend", Kind::kText},
    {"", "deepspeed_hostfile", Kind::kText},
    {"", "num_cpu_threads_per_process", Kind::kInteger},
    {"", "ipex_config", Kind::kAny},
    {"fsdp_config", "fsdp_version", Kind::kInteger, File::kAny, nullptr, "1|2", &option_tables::fsdp_options,
     "fsdp_version"},
    {"fsdp_config", "fsdp_sharding_strategy", Kind::kAny, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "sharding_strategy"},
    {"fsdp_config", "fsdp_reshard_after_forward", Kind::kAny, File::kAny, nullptr, nullptr,
     &option_tables::fsdp_options, "reshard_after_forward"},
    {"fsdp_config", "fsdp_backward_prefetch", Kind::kText, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "backward_prefetch"},
    {"fsdp_config", "fsdp_backward_prefetch_policy", Kind::kText, File::kAny, nullptr, nullptr,
     &option_tables::fsdp_options, "backward_prefetch"},
    {"fsdp_config", "fsdp_forward_prefetch", Kind::kFlag, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "forward_prefetch"},
    {"fsdp_config", "fsdp_auto_wrap_policy", Kind::kText, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "auto_wrap_policy"},
    {"fsdp_config", "fsdp_transformer_layer_cls_to_wrap", Kind::kAny, File::kAny, nullptr, nullptr,
     &option_tables::fsdp_options, "transformer_cls_names_to_wrap"},
    {"fsdp_config", "fsdp_min_num_params", Kind::kNumber, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "min_num_params"},
    {"fsdp_config", "fsdp_state_dict_type", Kind::kText, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "state_dict_type"},
    {"fsdp_config", "fsdp_offload_params", Kind::kFlag, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "cpu_offload"},
    {"fsdp_config", "fsdp_use_orig_params", Kind::kFlag, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "use_orig_params"},
    {"fsdp_config", "fsdp_sync_module_states", Kind::kFlag, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "sync_module_states"},
    {"fsdp_config", "fsdp_cpu_ram_efficient_loading", Kind::kFlag, File::kAny, nullptr, nullptr,
     &option_tables::fsdp_options, "cpu_ram_efficient_loading"},
    {"fsdp_config", "fsdp_activation_checkpointing", Kind::kFlag, File::kAny, nullptr, nullptr,
     &option_tables::fsdp_options, "activation_checkpointing"},
    {"fsdp_config", "fsdp_activation_checkpointing_offload", Kind::kFlag, File::kAny, nullptr, nullptr,
     &option_tables::fsdp_options, "activation_checkpointing_offload"},
    {"fsdp_config", "fsdp_ignored_modules", Kind::kAny, File::kAny, nullptr, nullptr, &option_tables::fsdp_options,
     "ignored_modules"},
    {"deepspeed_config", "deepspeed_config_file", Kind::kText, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "hf_ds_config"},
    {"deepspeed_config", "zero_stage", Kind::kInteger, File::kAny, nullptr, nullptr, &option_tables::deepspeed_options,
     "zero_stage"},
    {"deepspeed_config", "gradient_accumulation_steps", Kind::kAny, File::kAny, nullptr, nullptr,
     &option_tables::state_options, "gradient_accumulation_steps"},
    {"deepspeed_config", "gradient_clipping", Kind::kAny, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "gradient_clipping"},
    {"deepspeed_config", "offload_optimizer_device", Kind::kText, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "offload_optimizer_device"},
    {"deepspeed_config", "offload_param_device", Kind::kText, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "offload_param_device"},
    {"deepspeed_config", "offload_optimizer_nvme_path", Kind::kText, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "offload_optimizer_nvme_path"},
    {"deepspeed_config", "offload_param_nvme_path", Kind::kText, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "offload_param_nvme_path"},
    {"deepspeed_config", "zero3_init_flag", Kind::kFlag, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "zero3_init_flag"},
    {"deepspeed_config", "zero3_save_16bit_model", Kind::kFlag, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "zero3_save_16bit_model"},
    {"deepspeed_config", "deepspeed_moe_layer_cls_names", Kind::kAny, File::kAny, nullptr, nullptr,
     &option_tables::deepspeed_options, "transformer_moe_cls_names"},
    {"deepspeed_config", "deepspeed_multinode_launcher", Kind::kText},
    {"deepspeed_config", "deepspeed_hostfile", Kind::kText},
    {"deepspeed_config", "deepspeed_exclusion_filter", Kind::kText},
    {"deepspeed_config", "deepspeed_inclusion_filter", Kind::kText},
    {"parallelism_config", "parallelism_config_dp_replicate_size", Kind::kInteger, File::kAny, nullptr, nullptr,
     &option_tables::state_options, "data_parallel_replicate_size"},
    {"parallelism_config", "parallelism_config_dp_shard_size", Kind::kInteger, File::kAny, nullptr, nullptr,
     &option_tables::state_options, "data_parallel_shard_size"},
    {"parallelism_config", "parallelism_config_tp_size", Kind::kInteger, File::kAny, nullptr, nullptr,
     &option_tables::state_options, "tensor_parallel_size"},
    {"parallelism_config", "parallelism_config_cp_size", Kind::kInteger},
    {"parallelism_config", "parallelism_config_cp_backend", Kind::kText},
    {"parallelism_config", "parallelism_config_cp_comm_strategy", Kind::kText, File::kAny, nullptr, nullptr,
     &option_tables::context_parallel_options, "method"},
    {"parallelism_config", "parallelism_config_sp_size", Kind::kInteger},
    {"parallelism_config", "parallelism_config_sp_backend", Kind::kText},
    {"parallelism_config", "parallelism_config_sp_seq_length", Kind::kAny},
    {"parallelism_config", "parallelism_config_sp_seq_length_is_variable", Kind::kFlag},
    {"parallelism_config", "parallelism_config_sp_attn_implementation", Kind::kText},
    {"megatron_lm_config", "megatron_lm_tp_degree", Kind::kInteger},
    {"megatron_lm_config", "megatron_lm_pp_degree", Kind::kInteger},
    {"megatron_lm_config", "megatron_lm_num_micro_batches", Kind::kInteger},
    {"megatron_lm_config", "megatron_lm_sequence_parallelism", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_recompute_activations", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_use_distributed_optimizer", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_gradient_clipping", Kind::kNumber},
    {"megatron_lm_config", "megatron_lm_use_custom_fsdp", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_no_load_optim", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_eod_mask_loss", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_overlap_cpu_optimizer_d2h_h2d", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_no_save_optim", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_optimizer_cpu_offload", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_use_precision_aware_optimizer", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_decoder_last_pipeline_num_layers", Kind::kInteger},
    {"megatron_lm_config", "megatron_lm_recompute_granularity", Kind::kText},
    {"megatron_lm_config", "megatron_lm_recompute_method", Kind::kText},
    {"megatron_lm_config", "megatron_lm_recompute_num_layers", Kind::kInteger},
    {"megatron_lm_config", "megatron_lm_attention_backend", Kind::kText},
    {"megatron_lm_config", "megatron_lm_expert_model_parallel_size", Kind::kInteger},
    {"megatron_lm_config", "megatron_lm_context_parallel_size", Kind::kInteger},
    {"megatron_lm_config", "megatron_lm_attention_dropout", Kind::kNumber},
    {"megatron_lm_config", "megatron_lm_hidden_dropout", Kind::kNumber},
    {"megatron_lm_config", "megatron_lm_attention_softmax_in_fp32", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_expert_tensor_parallel_size", Kind::kInteger},
    {"megatron_lm_config", "megatron_lm_calculate_per_token_loss", Kind::kFlag},
    {"megatron_lm_config", "megatron_lm_use_rotary_position_embeddings", Kind::kFlag},
    {"dynamo_config", "dynamo_backend", Kind::kText},
    {"dynamo_config", "dynamo_mode", Kind::kText},
    {"dynamo_config", "dynamo_use_dynamic", Kind::kFlag},
    {"dynamo_config", "dynamo_use_fullgraph", Kind::kFlag},
    {"dynamo_config", "dynamo_use_regional_compilation", Kind::kFlag},
    {"fp8_config", "backend", Kind::kText, File::kAny, nullptr, nullptr, &option_tables::fp8_options, "backend"},
    {"fp8_config", "use_autocast_during_eval", Kind::kFlag, File::kAny, nullptr, nullptr, &option_tables::fp8_options,
     "use_in_evaluation"},
    {"fp8_config", "margin", Kind::kInteger, File::kAny, nullptr, nullptr, &option_tables::fp8_options, "margin"},
    {"fp8_config", "interval", Kind::kInteger, File::kAny, nullptr, nullptr, &option_tables::fp8_options, "interval"},
    {"fp8_config", "fp8_format", Kind::kText, File::kAny, nullptr, nullptr, &option_tables::fp8_options, "format"},
    {"fp8_config", "amax_history_len", Kind::kInteger, File::kAny, nullptr, nullptr, &option_tables::fp8_options,
     "amax_history_length"},
    {"fp8_config", "amax_history_length", Kind::kInteger, File::kAny, nullptr, nullptr, &option_tables::fp8_options,
     "amax_history_length"},
    {"fp8_config", "amax_compute_algo", Kind::kText, File::kAny, nullptr, nullptr, &option_tables::fp8_options,
     "amax_algorithm"},
    {"fp8_config", "amax_compute_algorithm", Kind::kText, File::kAny, nullptr, nullptr, &option_tables::fp8_options,
     "amax_algorithm"},
    {"fp8_config", "override_linear_precision", Kind::kAny},
    {"fp8_config", "use_mxfp8_block_scaling", Kind::kFlag, File::kAny, nullptr, nullptr, &option_tables::fp8_options,
     "use_mxfp8_block_scaling"},
    {"fp8_config", "opt_level", Kind::kText},
    {"fp8_config", "optimization_level", Kind::kText},
    {"fp8_config", "enable_fsdp_float8_all_gather", Kind::kFlag, File::kAny, nullptr, nullptr,
     &option_tables::fp8_options, "fsdp_all_gather"},
    {"fp8_config", "pad_inner_dim", Kind::kFlag, File::kAny, nullptr, nullptr, &option_tables::fp8_options,
     "pad_inner_dim"},
    {"mpirun_config", "mpirun_hostfile", Kind::kText},
    {"mpirun_config", "mpirun_ccl", Kind::kAny},
};

// Prefixes of options that names in their section may lack, or have.
struct SectionPrefix {
  std::string_view section, prefix;
};
constexpr SectionPrefix kSectionPrefixes[] = {{"fsdp_config", "fsdp_"}, {"fp8_config", "fp8_"}};

std::string_view without_prefix(std::string_view section, std::string_view name) {
  for (const SectionPrefix& one : kSectionPrefixes)
    if (one.section == section && name.substr(0, one.prefix.size()) == one.prefix)
      name.remove_prefix(one.prefix.size());
  return name;
}

}  // namespace

ReferenceNames all_reference_names() { return {kNames, std::size(kNames)}; }

bool is_reference_section(std::string_view name) {
  return !name.empty() && std::any_of(std::begin(kNames), std::end(kNames),
                                      [name](const ReferenceName& known) { return known.section == name; });
}

const ReferenceName* find_reference_name(std::string_view section, std::string_view name,
                                         std::vector<std::string_view>& known, File file) {
  for (const ReferenceName& one : kNames) {
    if (one.section != section || (file != File::kAny && one.file != File::kAny && one.file != file)) continue;
    if (without_prefix(section, one.name) == without_prefix(section, name)) return &one;
    known.push_back(one.name);
  }
  return nullptr;
}

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known) {
  return *std::min_element(known.begin(), known.end(), [name](std::string_view one, std::string_view other) {
    return edit_distance(name, one) < edit_distance(name, other);
  });
}

std::string unknown_name_text(std::string_view name, const std::vector<std::string_view>& known) {
  return text("there is no option '", name, "'; the nearest name is ", nearest_name(name, known));
}

}  // namespace accel
