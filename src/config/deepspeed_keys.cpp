// SPDX-License-Identifier: Apache-2.0
#include "config/deepspeed_keys.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/edit_distance.hpp"
#include "base/error.hpp"

namespace accel {
namespace {

struct Key {
  std::string_view path;
  const char* why_without_effect;  // null: it has one
};

constexpr const char* kNothing = "this library does not support it";
constexpr const char* kBySize = "the groups of parameters say what is sent together";
constexpr const char* kReports = "nothing is printed; accel_step_report() tells of times, trackers of values";
constexpr const char* kByProgram = "the program makes it";
constexpr const char* kAlways = "it is always so here";
constexpr const char* kStates = "states of optimizers have the type of the parameters";
constexpr const char* kMesh = "the mesh of the state says which ranks share parameters";
constexpr const char* kDisk = "files are read and written without it";

constexpr Key kKeys[] = {
    {"train_batch_size", nullptr},
    {"train_micro_batch_size_per_gpu", nullptr},
    {"gradient_accumulation_steps", nullptr},
    {"gradient_clipping", nullptr},
    {"communication_data_type", nullptr},
    {"optimizer", kByProgram},
    {"scheduler", kByProgram},
    {"fp16.enabled", nullptr},
    {"fp16.auto_cast", "mixed_precision says what is cast"},
    {"fp16.loss_scale", nullptr},
    {"fp16.initial_scale_power", nullptr},
    {"fp16.loss_scale_window", nullptr},
    {"fp16.hysteresis", nullptr},
    {"fp16.consecutive_hysteresis", nullptr},
    {"fp16.min_loss_scale", nullptr},
    {"fp16.fp16_master_weights_and_grads", kStates},
    {"bf16.enabled", nullptr},
    {"bf16.immediate_grad_update", kAlways},
    {"bf16.check_grad_overflow", "bfloat16 has the range of float32"},
    {"bf16.bf16_master_weights_and_grads", kStates},
    {"bf16.bf16_optimizer_states", kStates},
    {"zero_optimization.stage", nullptr},
    {"zero_optimization.offload_param.device", nullptr},
    {"zero_optimization.offload_param.nvme_path", nullptr},
    {"zero_optimization.offload_param.buffer_count", kDisk},
    {"zero_optimization.offload_param.buffer_size", kDisk},
    {"zero_optimization.offload_param.max_in_cpu", kDisk},
    {"zero_optimization.offload_param.pin_memory", kAlways},
    {"zero_optimization.offload_optimizer.device", nullptr},
    {"zero_optimization.offload_optimizer.nvme_path", nullptr},
    {"zero_optimization.offload_optimizer.buffer_count", kDisk},
    {"zero_optimization.offload_optimizer.pin_memory", kAlways},
    {"zero_optimization.offload_optimizer.pipeline", kDisk},
    {"zero_optimization.offload_optimizer.pipeline_read", kDisk},
    {"zero_optimization.offload_optimizer.pipeline_write", kDisk},
    {"zero_optimization.offload_optimizer.fast_init", kDisk},
    {"zero_optimization.offload_optimizer.ratio", "all states are in one place"},
    {"zero_optimization.stage3_param_persistence_threshold", nullptr},
    {"zero_optimization.stage3_model_persistence_threshold", kBySize},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "whole weights can always be saved"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", "whole weights can always be saved"},
    {"zero_optimization.allgather_partitions", kBySize},
    {"zero_optimization.allgather_bucket_size", kBySize},
    {"zero_optimization.reduce_scatter", kAlways},
    {"zero_optimization.reduce_bucket_size", kBySize},
    {"zero_optimization.overlap_comm", kAlways},
    {"zero_optimization.contiguous_gradients", kAlways},
    {"zero_optimization.sub_group_size", kBySize},
    {"zero_optimization.stage3_max_live_parameters", kBySize},
    {"zero_optimization.stage3_max_reuse_distance", kBySize},
    {"zero_optimization.stage3_prefetch_bucket_size", kBySize},
    {"zero_optimization.stage3_module_granularity_threshold", kBySize},
    {"zero_optimization.stage3_allgather_sequential", kBySize},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kBySize},
    {"zero_optimization.use_all_reduce_for_fetch_params", kBySize},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kBySize},
    {"zero_optimization.round_robin_gradients", kBySize},
    {"zero_optimization.ignore_unused_parameters", kAlways},
    {"zero_optimization.zero_hpz_partition_size", kMesh},
    {"zero_optimization.mics_shard_size", kMesh},
    {"zero_optimization.mics_hierarchical_params_gather", kMesh},
    {"zero_optimization.zero_quantized_weights", kNothing},
    {"zero_optimization.zero_quantized_nontrainable_weights", kNothing},
    {"zero_optimization.zero_quantized_gradients", kNothing},
    {"zero_optimization.zeropp_loco_param", kNothing},
    {"zero_optimization.memory_efficient_linear", "linear layers are those of the model"},
    {"zero_optimization.elastic_checkpoint", "checkpoints can always be read with another number of ranks"},
    {"zero_optimization.load_from_fp32_weights", kAlways},
    {"zero_optimization.pipeline_loading_checkpoint", kAlways},
    {"zero_optimization.override_module_apply", kAlways},
    {"zero_optimization.legacy_stage1", kNothing},
    {"zero_optimization.log_trace_cache_warnings", kReports},
    {"zero_optimization.enable_sanity_checks", kAlways},
    {"zero_optimization.cpu_offload", "it is older than offload_optimizer, which says the same"},
    {"zero_optimization.cpu_offload_params", "it is older than offload_param, which says the same"},
    {"zero_optimization.cpu_offload_use_pin_memory", kAlways},
    {"zero_optimization.leaf_module", "transformer_moe_cls_names says which modules are gathered as one"},
    {"zero_allow_untested_optimizer", kAlways},
    {"zero_force_ds_cpu_optimizer", "the optimizer of the program is used"},
    {"steps_per_print", kReports},
    {"wall_clock_breakdown", kReports},
    {"memory_breakdown", kReports},
    {"dump_state", kReports},
    {"flops_profiler", kReports},
    {"comms_logger", kReports},
    {"tensorboard", kReports},
    {"wandb", kReports},
    {"comet", kReports},
    {"csv_monitor", kReports},
    {"prescale_gradients", "gradients are averaged while they are summed"},
    {"gradient_predivide_factor", "gradients are averaged while they are summed"},
    {"sparse_gradients", "gradients are dense"},
    {"data_types", "communication_data_type says in which type gradients are summed"},
    {"seq_parallel_communication_data_type", kNothing},
    {"activation_checkpointing", "the model says what it computes again in backward"},
    {"aio", kDisk},
    {"checkpoint", "accel_save_state() has the forms of checkpoints"},
    {"load_universal_checkpoint", "checkpoints can always be read with another number of ranks"},
    {"amp", kNothing},
    {"msamp", kNothing},
    {"autotuning", kNothing},
    {"compression_training", kNothing},
    {"compile", kNothing},
    {"curriculum_learning", kNothing},
    {"data_efficiency", kNothing},
    {"disable_allgather", kNothing},
    {"eigenvalue", kNothing},
    {"elasticity", kNothing},
    {"graph_harvesting", kNothing},
    {"hybrid_engine", kNothing},
    {"nebula", kNothing},
    {"pipeline", kNothing},
    {"progressive_layer_drop", kNothing},
    {"quantize_training", kNothing},
    {"sparse_attention", kNothing},
    {"tensor_parallel", kNothing},
    {"timers", kReports},
    {"use_data_before_expert_parallelism", kNothing},
    {"weight_quantization", kNothing},
};

const Key* find_key(std::string_view path) {
  const auto* const found =
      std::find_if(std::begin(kKeys), std::end(kKeys), [path](const Key& key) { return key.path == path; });
  return found == std::end(kKeys) ? nullptr : found;
}

bool has_keys_below(std::string_view path) {
  return std::any_of(std::begin(kKeys), std::end(kKeys), [path](const Key& key) {
    return key.path.size() > path.size() && key.path.substr(0, path.size()) == path && key.path[path.size()] == '.';
  });
}

std::string_view nearest_key(std::string_view path) {
  const auto farther = [path](const Key& one, const Key& other) {
    return edit_distance(path, one.path) < edit_distance(path, other.path);
  };
  return std::min_element(std::begin(kKeys), std::end(kKeys), farther)->path;
}

bool is_turned_off(const Json& value) {
  const Json* const enabled = value.members() == nullptr ? nullptr : json_member(value, "enabled");
  return enabled != nullptr && enabled->flag() != nullptr && !*enabled->flag();
}

void collect(const Json& section, const std::string& prefix, const std::string& source,
             std::vector<std::string>& lines) {
  for (const auto& [name, value] : *section.members()) {
    const std::string path = prefix + name;
    const Key* const key = find_key(path);
    if (value.is_null() || is_turned_off(value)) continue;
    if (key != nullptr) {
      if (key->why_without_effect != nullptr) lines.push_back(path + ": " + key->why_without_effect);
    } else if (has_keys_below(path)) {
      require(value.members() != nullptr, Status::kInvalidArgument, source, ": ", path, " is ", print_json(value),
              "; expected an object");
      collect(value, path + ".", source, lines);
    } else {
      require(prefix.empty(), Status::kInvalidArgument, source, ": there is no key '", path, "'; the nearest is ",
              nearest_key(path));
      lines.push_back(text(path, ": it is not known; the nearest is ", nearest_key(path)));
    }
  }
}

}  // namespace

std::vector<std::string> deepspeed_keys_without_effect(const Json& document, const std::string& source) {
  std::vector<std::string> lines;
  collect(document, "", source, lines);
  return lines;
}

const Json* find_deepspeed_value(const Json& document, std::string_view path) {
  const Json* value = &document;
  while (!path.empty()) {
    if (value->members() == nullptr) return nullptr;
    const size_t end = std::min(path.find('.'), path.size());
    value = json_member(*value, path.substr(0, end));
    if (value == nullptr) return nullptr;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return value->is_null() ? nullptr : value;
}

}  // namespace accel
