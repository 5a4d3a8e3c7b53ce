// SPDX-License-Identifier: Apache-2.0
#include "config/megatron/megatron_settings.hpp"

#include <algorithm>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "config/generated/option_tables.hpp"

namespace accel {
namespace {

using Members = std::map<std::string, std::string, std::less<>>;

// Members with the values of an option.
struct Same {
  std::string_view name;
  const OptionTable* table;
  std::string_view field;
};
constexpr Same kSame[] = {
    {"megatron_lm_tp_degree", &option_tables::state_options, "tensor_parallel_size"},
    {"megatron_lm_pp_degree", &option_tables::state_options, "pipeline_parallel_size"},
    {"megatron_lm_context_parallel_size", &option_tables::state_options, "context_parallel_size"},
    {"megatron_lm_expert_model_parallel_size", &option_tables::state_options, "expert_parallel_size"},
    {"megatron_lm_num_micro_batches", &option_tables::pipeline_options, "micro_batches"},
    {"megatron_lm_sequence_parallelism", &option_tables::tensor_parallel_options, "sequence_parallel"},
};

// Members that the program says in another way.
struct Program {
  std::string_view name;
  const char* why;
  bool as_it_is = false;  // the value that asks for nothing
};
constexpr Program kOfPrograms[] = {
    {"megatron_lm_gradient_clipping", "a program clips by accel_clip_grad_norm() ahead of its steps"},
    {"megatron_lm_recompute_activations", "a model is made with an option recompute"},
    {"megatron_lm_recompute_granularity", "a model is made with an option recompute"},
    {"megatron_lm_recompute_method", "a model is made with an option recompute"},
    {"megatron_lm_recompute_num_layers", "a model is made with an option recompute"},
    {"megatron_lm_decoder_last_pipeline_num_layers", "the option split of a pipeline has the parts of each stage"},
    {"megatron_lm_eod_mask_loss", "a program says by its labels which tokens count"},
    {"megatron_lm_calculate_per_token_loss", "a program says by its loss whether tokens or rows count"},
    {"megatron_lm_no_load_optim", "accel_load_state() loads what the program has prepared"},
    {"megatron_lm_no_save_optim", "accel_save_state() saves what the program has prepared"},
    {"megatron_lm_use_precision_aware_optimizer", "an optimizer has states of the type that the program chooses"},
    {"megatron_lm_attention_backend", "attention is computed as is fastest for its shapes"},
    {"megatron_lm_attention_softmax_in_fp32", "the softmax of attention is always computed in float32", true},
    {"megatron_lm_attention_dropout", "a model is made with its rates of dropout"},
    {"megatron_lm_hidden_dropout", "a model is made with its rates of dropout"},
    {"megatron_lm_use_rotary_position_embeddings", "a model is made with its kind of positions"},
};

bool is_yes(const Members& members, std::string_view name) {
  const auto found = members.find(name);
  return found != members.end() && parse_flag(found->second).value_or(false);
}

bool asks_for_nothing(const std::string& written, bool as_it_is) {
  if (written.empty() || written == "0.0") return true;
  return parse_flag(written).value_or(!as_it_is) == as_it_is;
}

// The member that shards models, which decides how, and the one that keeps the optimizer's states elsewhere.
std::vector<MegatronSetting> sharding(const Members& members) {
  constexpr std::pair<std::string_view, const char*> kStrategies[] = {
      {"megatron_lm_use_custom_fsdp", "full_shard"},
      {"megatron_lm_use_distributed_optimizer", "shard_grad_op"},
      {"megatron_lm_optimizer_cpu_offload", "shard_grad_op"}};
  const OptionTable* const table = &option_tables::fsdp_options;
  std::vector<MegatronSetting> found;
  for (const auto& [name, strategy] : kStrategies) {
    if (!is_yes(members, name)) continue;
    MegatronSetting& one = found.emplace_back(MegatronSetting{name});
    if (found.size() == 1) one.settings = {{table, "enabled", "yes"}, {table, "sharding_strategy", strategy}};
    if (name == "megatron_lm_optimizer_cpu_offload") one.settings.push_back({table, "offload_optimizer", "yes"});
  }
  const char* const overlap = "megatron_lm_overlap_cpu_optimizer_d2h_h2d";
  if (is_yes(members, overlap) && !is_yes(members, "megatron_lm_optimizer_cpu_offload"))
    found.push_back({overlap, {}, "it needs megatron_lm_optimizer_cpu_offload, where copies always overlap"});
  return found;
}

// The layers of experts are whole, or split over the ranks that the others are split over.
std::vector<MegatronSetting> splitting_of_experts(const Members& members,
                                                  const std::function<std::string(std::string_view name)>& place_of) {
  constexpr std::string_view kName = "megatron_lm_expert_tensor_parallel_size", kDegree = "megatron_lm_tp_degree";
  const auto member = members.find(kName);
  if (member == members.end() || member->second == "1") return {};
  const auto found = members.find(kDegree);
  const std::string degree = found == members.end() ? "1" : found->second;
  require(member->second == degree, Status::kInvalidArgument, place_of(kName), ": ", kName, " is '", member->second,
          "' and ", kDegree, " is '", degree, "'; expected 1, or the same");
  return {{kName, {{&option_tables::expert_parallel_options, "tensor_parallel_experts", "yes"}}}};
}

}  // namespace

std::vector<MegatronSetting> megatron_settings(const Members& members,
                                               const std::function<std::string(std::string_view name)>& place_of) {
  std::vector<MegatronSetting> found = splitting_of_experts(members, place_of);
  for (MegatronSetting& one : sharding(members)) found.push_back(std::move(one));
  for (const Same& same : kSame)
    if (const auto member = members.find(same.name); member != members.end())
      found.push_back({same.name, {{same.table, same.field, member->second}}});
  for (const auto& [name, why, as_it_is] : kOfPrograms)
    if (const auto member = members.find(name); member != members.end() && !asks_for_nothing(member->second, as_it_is))
      found.push_back({name, {}, why});
  return found;
}

}  // namespace accel
