// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/launch_option_list.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

#include "base/split_text.hpp"
#include "config/generated/option_tables.hpp"
#include "config/interned_bytes.hpp"
#include "config/reference_configuration.hpp"
#include "json/json.hpp"
#include "launch/plan/launch_option_rows.hpp"

namespace accel::launch {
namespace {

// An option that is a field of a table of the library, under Accelerate's name.
struct FieldRow {
  const char* name;
  const OptionGroup* group;
  const OptionTable* table;
  const char* field;
  std::string_view aliases;
  const char* parser_default;
  bool has_value;
  const char* yes = "true";
  const char* no = "false";
};

using option_tables::deepspeed_options;
using option_tables::fp8_options;
using option_tables::fsdp_options;
using option_tables::state_options;
using option_tables::tensor_parallel_options;

constexpr FieldRow kFieldRows[] = {
    {"cpu", &groups::processes, &state_options, "cpu", "", "false", false, "True", "False"},
    {"enable_cpu_affinity", &groups::processes, &state_options, "cpu_affinity", "cpu_affinity", "false", false, "1",
     "0"},
    {"main_process_ip", &groups::hosts, &state_options, "main_process_ip", "", "null", true},
    {"main_process_port", &groups::hosts, &state_options, "main_process_port", "", "null", true},
    {"mixed_precision", &groups::settings, &state_options, "mixed_precision", "", "null", true},
    {"gradient_accumulation_steps", &groups::settings, &state_options, "gradient_accumulation_steps", "", "null", true},
    {"debug", &groups::settings, &state_options, "debug", "", "false", false},
    {"use_fsdp", &groups::fsdp, &fsdp_options, "enabled", "", "false", false},
    {"fsdp_version", &groups::fsdp, &fsdp_options, "fsdp_version", "", "\"1\"", true},
    {"fsdp_offload_params", &groups::fsdp, &fsdp_options, "cpu_offload", "", "\"false\"", true},
    {"fsdp_min_num_params", &groups::fsdp, &fsdp_options, "min_num_params", "", "100000000", true},
    {"fsdp_sharding_strategy", &groups::fsdp, &fsdp_options, "sharding_strategy", "", "\"FULL_SHARD\"", true},
    {"fsdp_reshard_after_forward", &groups::fsdp, &fsdp_options, "reshard_after_forward", "", "\"true\"", true},
    {"fsdp_auto_wrap_policy", &groups::fsdp, &fsdp_options, "auto_wrap_policy", "", "null", true},
    {"fsdp_transformer_layer_cls_to_wrap", &groups::fsdp, &fsdp_options, "transformer_cls_names_to_wrap", "", "null",
     true},
    {"fsdp_backward_prefetch", &groups::fsdp, &fsdp_options, "backward_prefetch", "", "null", true},
    {"fsdp_state_dict_type", &groups::fsdp, &fsdp_options, "state_dict_type", "", "null", true},
    {"fsdp_forward_prefetch", &groups::fsdp, &fsdp_options, "forward_prefetch", "", "\"false\"", true},
    {"fsdp_use_orig_params", &groups::fsdp, &fsdp_options, "use_orig_params", "", "\"true\"", true},
    {"fsdp_cpu_ram_efficient_loading", &groups::fsdp, &fsdp_options, "cpu_ram_efficient_loading", "", "\"true\"", true},
    {"fsdp_sync_module_states", &groups::fsdp, &fsdp_options, "sync_module_states", "", "\"true\"", true},
    {"fsdp_activation_checkpointing", &groups::fsdp, &fsdp_options, "activation_checkpointing", "", "\"false\"", true},
    {"fsdp_activation_checkpointing_offload", &groups::fsdp, &fsdp_options, "activation_checkpointing_offload", "",
     "\"false\"", true},
    {"fsdp_ignored_modules", &groups::fsdp, &fsdp_options, "ignored_modules", "", nullptr, true},
    {"use_deepspeed", &groups::deepspeed, &deepspeed_options, "enabled", "", "false", false},
    {"deepspeed_config_file", &groups::deepspeed, &deepspeed_options, "hf_ds_config", "", "null", true},
    {"zero_stage", &groups::deepspeed, &deepspeed_options, "zero_stage", "", "null", true},
    {"offload_optimizer_device", &groups::deepspeed, &deepspeed_options, "offload_optimizer_device", "", "null", true},
    {"offload_param_device", &groups::deepspeed, &deepspeed_options, "offload_param_device", "", "null", true},
    {"offload_optimizer_nvme_path", &groups::deepspeed, &deepspeed_options, "offload_optimizer_nvme_path", "", "null",
     true},
    {"offload_param_nvme_path", &groups::deepspeed, &deepspeed_options, "offload_param_nvme_path", "", "null", true},
    {"gradient_clipping", &groups::deepspeed, &deepspeed_options, "gradient_clipping", "", "null", true},
    {"zero3_init_flag", &groups::deepspeed, &deepspeed_options, "zero3_init_flag", "", "null", true},
    {"zero3_save_16bit_model", &groups::deepspeed, &deepspeed_options, "zero3_save_16bit_model", "", "null", true},
    {"deepspeed_moe_layer_cls_names", &groups::deepspeed, &deepspeed_options, "transformer_moe_cls_names", "", "null",
     true},
    {"parallelism_config_dp_replicate_size", &groups::parallelism, &state_options, "data_parallel_replicate_size",
     "data_parallel_replicate_size", "1", true},
    {"parallelism_config_dp_shard_size", &groups::parallelism, &state_options, "data_parallel_shard_size",
     "data_parallel_shard_size", "1", true},
    {"parallelism_config_tp_size", &groups::parallelism, &state_options, "tensor_parallel_size", "tensor_parallel_size",
     "1", true},
    {"parallelism_config_cp_size", &groups::parallelism, &state_options, "context_parallel_size",
     "context_parallel_size", "1", true},
    {"parallelism_config_pp_size", &groups::parallelism, &state_options, "pipeline_parallel_size",
     "pipeline_parallel_size", nullptr, true},
    {"parallelism_config_ep_size", &groups::parallelism, &state_options, "expert_parallel_size", "expert_parallel_size",
     nullptr, true},
    {"parallelism_config_tp_plan", &groups::parallelism, &tensor_parallel_options, "plan", "", nullptr, true},
    {"parallelism_config_tp_sequence_parallel", &groups::parallelism, &tensor_parallel_options, "sequence_parallel", "",
     nullptr, true},
    {"parallelism_config_tp_verify_gradients", &groups::parallelism, &tensor_parallel_options, "verify_gradients", "",
     nullptr, true},
    {"parallelism_config_tp_loss_parallel", &groups::parallelism, &tensor_parallel_options, "loss_parallel", "",
     nullptr, true},
    {"parallelism_config_tp_regather_inputs", &groups::parallelism, &tensor_parallel_options, "regather_inputs", "",
     nullptr, true},
    {"parallelism_config_tp_overlap", &groups::parallelism, &tensor_parallel_options, "overlap", "", nullptr, true},
    {"parallelism_config_tp_overlap_chunks", &groups::parallelism, &tensor_parallel_options, "overlap_chunks", "",
     nullptr, true},
    {"fp8_backend", &groups::fp8, &fp8_options, "backend", "", "null", true},
    {"fp8_use_autocast_during_eval", &groups::fp8, &fp8_options, "use_in_evaluation", "", "false", false, "True",
     "False"},
    {"fp8_margin", &groups::fp8, &fp8_options, "margin", "", "0", true},
    {"fp8_interval", &groups::fp8, &fp8_options, "interval", "", "1", true},
    {"fp8_format", &groups::fp8, &fp8_options, "format", "", "\"HYBRID\"", true},
    {"fp8_amax_history_len", &groups::fp8, &fp8_options, "amax_history_length", "fp8_amax_history_length", "1024",
     true},
    {"fp8_amax_compute_algo", &groups::fp8, &fp8_options, "amax_algorithm", "fp8_amax_compute_algorithm",
     "\"most_recent\"", true},
    {"fp8_use_mxfp8_block_scaling", &groups::fp8, &fp8_options, "use_mxfp8_block_scaling", "", nullptr, false, "True",
     "False"},
    {"fp8_enable_fsdp_float8_all_gather", &groups::fp8, &fp8_options, "fsdp_all_gather", "", "true", true, "True",
     "False"},
    {"fp8_pad_inner_dim", &groups::fp8, &fp8_options, "pad_inner_dim", "", "true", true, "True", "False"},
};

constexpr RefusedValue kRefusalRows[] = {
    {"tpu", "true", "", "TPUs"},
};

LaunchOption option_of(const FieldRow& row) {
  const OptionField* const field = std::find_if(row.table->begin(), row.table->end(), [&](const OptionField& one) {
    return one.name == std::string_view(row.field);
  });
  LaunchOption option{*field, row.group, row.aliases, row.parser_default, row.has_value, row.yes, row.no};
  option.field.name = row.name;
  const std::string_view name = row.name;
  if (name == "main_process_port") {
    option.field.default_value = nullptr;
    option.field.default_words = "a free one, with several machines 29500";
  }
  // The ranks get these values once the group is turned on.
  if (row.group == &groups::fsdp && row.has_value && row.parser_default != nullptr &&
      row.parser_default != std::string_view("null")) {
    const Json value = parse_json(row.parser_default, row.name);
    option.field.default_value = nullptr;
    option.field.default_words = interned_bytes(value.text() != nullptr ? *value.text() : *value.digits());
  }
  // Version 1 has names of strategies, version 2 yes or no.
  if (name == "fsdp_reshard_after_forward") option.field.kind = OptionKind::kText;
  return option;
}

std::vector<LaunchOption> all_options() {
  std::vector<LaunchOption> found;
  for (const LaunchOption& option : own_launch_options()) found.push_back(option);
  for (const FieldRow& row : kFieldRows) found.push_back(option_of(row));
  for (const OptionField& field : state_options) {
    const auto is_row = [&](const FieldRow& row) {
      return row.table == &state_options && row.field == std::string_view(field.name);
    };
    if (field.variable == nullptr || std::any_of(std::begin(kFieldRows), std::end(kFieldRows), is_row)) continue;
    LaunchOption option{field, &groups::settings};
    option.has_value = !option.is_flag();
    found.push_back(option);
  }
  constexpr const OptionGroup* kOrder[] = {
      &groups::processes, &groups::program,   &groups::hosts,       &groups::output,      &groups::settings,
      &groups::fsdp,      &groups::deepspeed, &groups::parallelism, &groups::compilation, &groups::fp8,
      &groups::megatron,  &groups::tpu,       &groups::sagemaker};
  const auto place = [&](const LaunchOption& option) {
    return std::find(std::begin(kOrder), std::end(kOrder), option.group) - std::begin(kOrder);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const LaunchOption& one, const LaunchOption& other) { return place(one) < place(other); });
  return found;
}

}  // namespace

const std::vector<LaunchOption>& launch_options() {
  static const std::vector<LaunchOption>& options =
      *std::make_unique<std::vector<LaunchOption>>(all_options()).release();
  return options;
}

const LaunchOption* find_launch_option(std::string_view name) {
  for (const LaunchOption& option : launch_options()) {
    if (option.field.name == name) return &option;
    for (const std::string& alias : split_text(option.aliases))
      if (alias == name) return &option;
  }
  return nullptr;
}

const char* refused_meaning(const LaunchOption& option, std::string_view value) {
  for (const RefusedValue& refusal : kRefusalRows)
    if (refusal.matches(option.field.name, value)) return refusal.asks_for;
  return nullptr;
}

}  // namespace accel::launch
