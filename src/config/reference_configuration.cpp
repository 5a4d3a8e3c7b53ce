#include "config/reference_configuration.hpp"

#include <strings.h>

#include <algorithm>
#include <iterator>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "config/generated/option_tables.hpp"

namespace accel {
namespace {

constexpr ReferenceName kNames[] = {
    {"", "compute_environment", nullptr, ""},
    {"", "distributed_type", nullptr, ""},
    {"", "debug", &option_tables::state_options, "debug"},
    {"", "use_cpu", &option_tables::state_options, "cpu"},
    {"", "mixed_precision", &option_tables::state_options, "mixed_precision"},
    {"", "enable_cpu_affinity", &option_tables::state_options, "cpu_affinity"},
    {"", "fp16", nullptr, ""},
    {"", "dynamo_backend", nullptr, ""},
    {"", "downcast_bf16", nullptr, ""},
    {"", "num_machines", nullptr, ""},
    {"", "machine_rank", nullptr, ""},
    {"", "gpu_ids", nullptr, ""},
    {"", "rdzv_backend", nullptr, ""},
    {"", "same_network", nullptr, ""},
    {"", "main_training_function", nullptr, ""},
    {"", "deepspeed_hostfile", nullptr, ""},
    {"", "num_cpu_threads_per_process", nullptr, ""},
    {"", "tpu_name", nullptr, ""},
    {"", "tpu_zone", nullptr, ""},
    {"", "tpu_use_cluster", nullptr, ""},
    {"", "tpu_use_sudo", nullptr, ""},
    {"", "tpu_vm", nullptr, ""},
    {"", "tpu_env", nullptr, ""},
    {"", "command_file", nullptr, ""},
    {"", "commands", nullptr, ""},
    {"", "fp8_config", nullptr, ""},
    {"", "megatron_lm_config", nullptr, ""},
    {"", "mpirun_config", nullptr, ""},
    {"", "ipex_config", nullptr, ""},
    {"dynamo_config", "dynamo_backend", nullptr, ""},
    {"dynamo_config", "dynamo_mode", nullptr, ""},
    {"dynamo_config", "dynamo_use_dynamic", nullptr, ""},
    {"dynamo_config", "dynamo_use_fullgraph", nullptr, ""},
    {"dynamo_config", "dynamo_use_regional_compilation", nullptr, ""},
    {"fsdp_config", "fsdp_version", &option_tables::fsdp_options, "fsdp_version"},
    {"fsdp_config", "fsdp_sharding_strategy", &option_tables::fsdp_options, "sharding_strategy"},
    {"fsdp_config", "fsdp_reshard_after_forward", &option_tables::fsdp_options, "reshard_after_forward"},
    {"fsdp_config", "fsdp_backward_prefetch", &option_tables::fsdp_options, "backward_prefetch"},
    {"fsdp_config", "fsdp_backward_prefetch_policy", &option_tables::fsdp_options, "backward_prefetch"},
    {"fsdp_config", "fsdp_forward_prefetch", &option_tables::fsdp_options, "forward_prefetch"},
    {"fsdp_config", "fsdp_auto_wrap_policy", &option_tables::fsdp_options, "auto_wrap_policy"},
    {"fsdp_config", "fsdp_transformer_layer_cls_to_wrap", &option_tables::fsdp_options,
     "transformer_cls_names_to_wrap"},
    {"fsdp_config", "fsdp_min_num_params", &option_tables::fsdp_options, "min_num_params"},
    {"fsdp_config", "fsdp_state_dict_type", &option_tables::fsdp_options, "state_dict_type"},
    {"fsdp_config", "fsdp_offload_params", &option_tables::fsdp_options, "cpu_offload"},
    {"fsdp_config", "fsdp_use_orig_params", &option_tables::fsdp_options, "use_orig_params"},
    {"fsdp_config", "fsdp_sync_module_states", &option_tables::fsdp_options, "sync_module_states"},
    {"fsdp_config", "fsdp_cpu_ram_efficient_loading", &option_tables::fsdp_options, "cpu_ram_efficient_loading"},
    {"fsdp_config", "fsdp_activation_checkpointing", &option_tables::fsdp_options, "activation_checkpointing"},
    {"fsdp_config", "fsdp_activation_checkpointing_offload", &option_tables::fsdp_options,
     "activation_checkpointing_offload"},
    {"fsdp_config", "fsdp_ignored_modules", &option_tables::fsdp_options, "ignored_modules"},
    {"deepspeed_config", "deepspeed_config_file", &option_tables::deepspeed_options, "hf_ds_config"},
    {"deepspeed_config", "zero_stage", &option_tables::deepspeed_options, "zero_stage"},
    {"deepspeed_config", "gradient_accumulation_steps", &option_tables::state_options, "gradient_accumulation_steps"},
    {"deepspeed_config", "gradient_clipping", &option_tables::deepspeed_options, "gradient_clipping"},
    {"deepspeed_config", "offload_optimizer_device", &option_tables::deepspeed_options, "offload_optimizer_device"},
    {"deepspeed_config", "offload_param_device", &option_tables::deepspeed_options, "offload_param_device"},
    {"deepspeed_config", "offload_optimizer_nvme_path", &option_tables::deepspeed_options,
     "offload_optimizer_nvme_path"},
    {"deepspeed_config", "offload_param_nvme_path", &option_tables::deepspeed_options, "offload_param_nvme_path"},
    {"deepspeed_config", "zero3_init_flag", &option_tables::deepspeed_options, "zero3_init_flag"},
    {"deepspeed_config", "zero3_save_16bit_model", &option_tables::deepspeed_options, "zero3_save_16bit_model"},
    {"deepspeed_config", "deepspeed_moe_layer_cls_names", &option_tables::deepspeed_options,
     "transformer_moe_cls_names"},
    {"deepspeed_config", "deepspeed_multinode_launcher", nullptr, ""},
    {"deepspeed_config", "deepspeed_hostfile", nullptr, ""},
    {"deepspeed_config", "deepspeed_exclusion_filter", nullptr, ""},
    {"deepspeed_config", "deepspeed_inclusion_filter", nullptr, ""},
    {"parallelism_config", "parallelism_config_dp_replicate_size", &option_tables::state_options,
     "data_parallel_replicate_size"},
    {"parallelism_config", "parallelism_config_dp_shard_size", &option_tables::state_options,
     "data_parallel_shard_size"},
    {"parallelism_config", "parallelism_config_tp_size", &option_tables::state_options, "tensor_parallel_size"},
    {"parallelism_config", "parallelism_config_cp_size", &option_tables::state_options, "context_parallel_size"},
    {"parallelism_config", "parallelism_config_cp_backend", nullptr, ""},
    {"parallelism_config", "parallelism_config_cp_comm_strategy", nullptr, ""},
    {"parallelism_config", "parallelism_config_sp_size", nullptr, ""},
    {"parallelism_config", "parallelism_config_sp_backend", nullptr, ""},
    {"parallelism_config", "parallelism_config_sp_seq_length", nullptr, ""},
    {"parallelism_config", "parallelism_config_sp_seq_length_is_variable", nullptr, ""},
    {"parallelism_config", "parallelism_config_sp_attn_implementation", nullptr, ""},
};

// Kinds of parallelism that a file turns on by distributed_type.
constexpr ReferenceName kTypes[] = {
    {"", "FSDP", &option_tables::fsdp_options, "enabled"},
    {"", "DEEPSPEED", &option_tables::deepspeed_options, "enabled"},
};

// Values that ask for what is not there.
struct Refusal {
  std::string_view name, value;  // "": every value but `otherwise`
  std::string_view otherwise;
  const char* asks_for;
};
constexpr Refusal kRefusals[] = {
    {"distributed_type", "MEGATRON_LM", "", "Megatron-LM"},
    {"distributed_type", "XLA", "", "TPUs"},
    {"distributed_type", "TPU", "", "TPUs"},
    {"compute_environment", "", "LOCAL_MACHINE", "SageMaker"},
    {"dynamo_backend", "", "NO", "compilation by torch.compile"},
    {"parallelism_config_sp_size", "", "1", "sequence parallelism"},
    {"parallelism_config_cp_backend", "", "torch", "another kind of context parallelism"},
};

bool is_same(std::string_view one, const std::string& other) {
  return one.size() == other.size() && strncasecmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace

bool is_reference_section(std::string_view name) {
  return !name.empty() && std::any_of(std::begin(kNames), std::end(kNames),
                                      [name](const ReferenceName& known) { return known.section == name; });
}

const ReferenceName* find_reference_name(std::string_view section, std::string_view name,
                                         std::vector<std::string_view>& known) {
  for (const ReferenceName& one : kNames) {
    if (one.section != section) continue;
    if (one.name == name) return &one;
    known.push_back(one.name);
  }
  return nullptr;
}

void refuse_reference_value(std::string_view name, const std::string& written, const std::string& place) {
  for (const Refusal& refusal : kRefusals)
    require(name != refusal.name ||
                !(refusal.value.empty() ? !is_same(refusal.otherwise, written) : is_same(refusal.value, written)),
            Status::kUnsupported, place, ": ", name, " is '", written, "', which asks for ", refusal.asks_for,
            "; this version has nothing of the kind");
}

ReferenceMeaning reference_meaning(std::string_view name, const std::string& written) {
  if (name == "fp16" && parse_flag(written).value_or(false))
    return {&option_tables::state_options, "mixed_precision", "fp16"};
  if (name != "distributed_type") return {};
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const ReferenceName& type) { return is_same(type.name, written); });
  return found == std::end(kTypes) ? ReferenceMeaning() : ReferenceMeaning{found->table, found->field, "yes"};
}

bool is_name_of_reference_files(std::string_view name) {
  return name == "compute_environment" || name == "distributed_type";
}

}  // namespace accel
