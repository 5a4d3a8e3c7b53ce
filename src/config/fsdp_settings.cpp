// SPDX-License-Identifier: Apache-2.0
#include "config/fsdp_settings.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/regular_expression.hpp"
#include "config/precedence.hpp"

namespace accel {
namespace {

const OptionField& fsdp_field(std::string_view name) {
  const OptionTable& table = FsdpSettings::table();
  return *std::find_if(table.begin(), table.end(), [name](const OptionField& field) { return name == field.name; });
}

std::string origin(const std::string& source) { return source == "call" ? "" : text(" (from ", source, ")"); }

template <typename T>
std::string describe(const char* name, const Setting<T>& setting) {
  return text(name, " is ", precedence::print(fsdp_field(name), setting.value), origin(setting.source));
}

// Reads reshard_after_forward from the environment or the file: yes or no in version 2, a strategy's name or number in
// version 1, where sharding_strategy counts if both are given.
void read_reshard(FsdpSettings& settings, const OptionText& written) {
  const OptionField& strategies = fsdp_field("sharding_strategy");
  const std::string said = text("reshard_after_forward is '", written.text, "'", origin(written.source));
  const std::optional<bool> flag = parse_flag(written.text);
  if (settings.fsdp_version == 2) {
    require(flag.has_value(), Status::kInvalidArgument, said, " and fsdp_version is 2; expected yes or no");
    settings.reshard_after_forward.set(flag, written.source);
    return;
  }
  const OptionChoice* const strategy = find_choice(strategies, written.text);
  require(strategy != nullptr || flag.has_value(), Status::kInvalidArgument, said,
          " and fsdp_version is 1; expected one of ", choice_names(strategies, ", "));
  if (settings.sharding_strategy.is_default()) {
    require(strategy != nullptr || *flag, Status::kInvalidArgument, said,
            " and fsdp_version is 1; expected a strategy such as shard_grad_op, or fsdp_version 2");
    if (strategy != nullptr)
      settings.sharding_strategy.set(static_cast<ShardingStrategy>(strategy->value), written.source);
  } else if (strategy != nullptr && strategy->value != static_cast<int32_t>(settings.sharding_strategy.value)) {
    log(LogLevel::kWarning, said, " and ", describe("sharding_strategy", settings.sharding_strategy),
        ", which is what counts; expected one of the two");
  }
}

// Version 2 has no such setting. Launchers set the variables of both versions, to what is the default here.
template <typename T>
void drop(const char* name, Setting<T>& setting, const Setting<T>& initial, std::string& dropped) {
  if (!(setting.value == initial.value)) dropped += text(dropped.empty() ? "" : ", ", describe(name, setting));
  setting = initial;
}

void follow_version_2(FsdpSettings& settings) {
  require(!settings.forward_prefetch, Status::kInvalidArgument, describe("forward_prefetch", settings.forward_prefetch),
          " and fsdp_version is 2, which does not support it; expected no, or fsdp_version 1");
  const FsdpSettings initial;
  std::string dropped;
  drop("sharding_strategy", settings.sharding_strategy, initial.sharding_strategy, dropped);
  drop("backward_prefetch", settings.backward_prefetch, initial.backward_prefetch, dropped);
  drop("use_orig_params", settings.use_orig_params, initial.use_orig_params, dropped);
  drop("sync_module_states", settings.sync_module_states, initial.sync_module_states, dropped);
  if (!dropped.empty())
    log(LogLevel::kWarning, dropped,
        " and fsdp_version is 2, where it has no effect; reshard_after_forward says when "
        "parameters are whole");
  if (settings.state_dict_type.is_default()) settings.state_dict_type.value = StateDictType::kShardedStateDict;
  require(settings.state_dict_type != StateDictType::kLocalStateDict, Status::kInvalidArgument,
          describe("state_dict_type", settings.state_dict_type),
          " and fsdp_version is 2; expected full_state_dict or sharded_state_dict");
}

void follow_version_1(FsdpSettings& settings) {
  require(!settings.activation_checkpointing_offload, Status::kInvalidArgument,
          describe("activation_checkpointing_offload", settings.activation_checkpointing_offload),
          " and fsdp_version is 1; expected fsdp_version 2");
  if (!settings.cpu_ram_efficient_loading || settings.sync_module_states) return;
  log(LogLevel::kWarning, describe("sync_module_states", settings.sync_module_states), " and ",
      describe("cpu_ram_efficient_loading", settings.cpu_ram_efficient_loading),
      ": only rank 0 has weights, so that the others take them from it all the same");
  settings.sync_module_states.value = true;
}

void check_dtype(const char* name, Setting<std::string>& dtype) {
  if (dtype.value.empty()) return;
  struct Name {
    std::string_view written, meant;
  };
  // Models that compute in fp8 keep their tensors in bfloat16.
  static constexpr Name kNames[] = {{"float32", "float32"}, {"fp32", "float32"}, {"bfloat16", "bfloat16"},
                                    {"bf16", "bfloat16"},   {"fp8", "bfloat16"}, {"float16", "float16"},
                                    {"fp16", "float16"}};
  const auto* const found = std::find_if(std::begin(kNames), std::end(kNames),
                                         [&dtype](const Name& one) { return one.written == dtype.value; });
  require(found != std::end(kNames), Status::kInvalidArgument, name, " is '", dtype.value, "'", origin(dtype.source),
          "; expected float32, bfloat16 or float16");
  dtype.value = found->meant;
}

void check_ignored_modules(const Setting<std::string>& ignored) {
  const RegularExpression checked(ignored.value,
                                  text("ignored_modules is '", ignored.value, "'", origin(ignored.source)),
                                  "the whole names of modules");
}

// The names without blanks. They have an effect under one policy.
void check_classes(const char* field, Setting<std::string>& names, const FsdpSettings& settings, AutoWrapPolicy policy,
                   const char* policy_name) {
  std::string joined;
  for (const std::string& name : class_names(names.value, field)) joined += (joined.empty() ? "" : ",") + name;
  names.value = joined;
  if (!names.value.empty() && settings.auto_wrap_policy != policy)
    log(LogLevel::kWarning, describe(field, names), " and ", describe("auto_wrap_policy", settings.auto_wrap_policy),
        ", so that the names have no effect; expected ", policy_name);
}

void check_wrapping(FsdpSettings& settings) {
  check_classes("transformer_cls_names_to_wrap", settings.transformer_cls_names_to_wrap, settings,
                AutoWrapPolicy::kTransformerBasedWrap, "transformer_based_wrap");
  check_classes("leaf_module_classes", settings.leaf_module_classes, settings, AutoWrapPolicy::kSizeBasedWrap,
                "size_based_wrap");
  if (settings.min_num_params.source == "call" && settings.min_num_params > 0 &&
      settings.auto_wrap_policy != AutoWrapPolicy::kSizeBasedWrap)
    log(LogLevel::kWarning, describe("min_num_params", settings.min_num_params), " and ",
        describe("auto_wrap_policy", settings.auto_wrap_policy),
        ", so that the number has no effect; expected size_based_wrap");
}

void check_offload(const FsdpSettings& settings) {
  require(settings.offload_folder.value.empty() || settings.cpu_offload || settings.offload_optimizer,
          Status::kInvalidArgument, describe("offload_folder", settings.offload_folder),
          ", and nothing is offloaded; expected cpu_offload or offload_optimizer too");
}

// Variables and entries of a file that ask for something of sharding, which is off.
void warn_of_unused(const FsdpSettings& settings) {
  std::string unused;
  FsdpSettings defaults;
  FsdpSettings::for_each(
      [&unused](const OptionField& field, const auto& setting, const auto& initial) {
        if (setting.is_default() || field.name == std::string_view("enabled") || setting.value == initial.value) return;
        unused += text(unused.empty() ? "" : ", ", describe(field.name, setting));
      },
      settings, defaults);
  if (!unused.empty())
    log(LogLevel::kWarning, unused,
        ", without effect, because parameters are not sharded; enabled or "
        "ACCELERATE_USE_FSDP=true shards them");
}

}  // namespace

std::vector<std::string> class_names(const std::string& list, const char* field) {
  std::vector<std::string> names;
  for (size_t begin = 0; !list.empty() && begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string part = list.substr(begin, end - begin);
    const size_t first = part.find_first_not_of(" \t");
    require(first != std::string::npos, Status::kInvalidArgument, field, " is '", list,
            "', where a name is empty; expected names of classes with commas between them");
    names.push_back(part.substr(first, part.find_last_not_of(" \t") + 1 - first));
    begin = end + 1;
  }
  return names;
}

FsdpSettings check_fsdp_settings(FsdpSettings given) {
  check_settings(given);
  require(!given.activation_checkpointing_offload || given.activation_checkpointing, Status::kInvalidArgument,
          describe("activation_checkpointing_offload", given.activation_checkpointing_offload), " and ",
          describe("activation_checkpointing", given.activation_checkpointing), "; expected both, or neither");
  given.fsdp_version == 2 ? follow_version_2(given) : follow_version_1(given);
  check_dtype("param_dtype", given.param_dtype);
  check_dtype("reduce_dtype", given.reduce_dtype);
  check_dtype("output_dtype", given.output_dtype);
  check_ignored_modules(given.ignored_modules);
  check_wrapping(given);
  check_offload(given);
  return given;
}

FsdpSettings resolve_fsdp_settings(FsdpSettings given, bool has_shards) {
  // Its text depends on the version, so that it is not a flag as others are.
  std::optional<OptionText> reshard;
  if (given.reshard_after_forward.is_default())
    reshard = find_written_option(FsdpSettings::table(), fsdp_field("reshard_after_forward"),
                                  ConfigurationFile::of_environment());
  if (reshard) given.reshard_after_forward.set(std::nullopt, reshard->source);
  resolve_settings(given);
  require(!has_shards || given.enabled.value_or(true), Status::kInvalidArgument, describe("enabled", given.enabled),
          " and data_parallel_shard_size of the state is above 1; expected yes, or a size of 1");
  if (given.enabled.is_default()) given.enabled.value = has_shards;
  if (!*given.enabled) {
    warn_of_unused(given);
    return given;
  }
  if (reshard) read_reshard(given, *reshard);
  return check_fsdp_settings(std::move(given));
}

}  // namespace accel
