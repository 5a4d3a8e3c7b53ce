// SPDX-License-Identifier: Apache-2.0
#include "config/reference_configuration.hpp"

#include <strings.h>

#include <algorithm>
#include <iterator>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "config/generated/option_tables.hpp"

namespace accel {
namespace {

// Kinds of parallelism that a file turns on by distributed_type.
struct ParallelType {
  std::string_view name;
  const OptionTable* table;
};
constexpr ParallelType kTypes[] = {
    {"FSDP", &option_tables::fsdp_options},
    {"DEEPSPEED", &option_tables::deepspeed_options},
};

constexpr RefusedValue kRefusals[] = {
    {"distributed_type", "XLA", "", "TPUs"},
    {"distributed_type", "TPU", "", "TPUs"},
    {"compute_environment", "", "LOCAL_MACHINE", "SageMaker"},
    {"parallelism_config_cp_backend", "", "torch", "another kind of context parallelism"},
};

bool is_same(std::string_view one, std::string_view other) {
  return one.size() == other.size() && strncasecmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace

bool RefusedValue::matches(std::string_view setting, std::string_view written) const {
  return setting == name && (value.empty() ? !is_same(otherwise, written) : is_same(value, written));
}

void refuse_reference_value(std::string_view name, const std::string& written, const std::string& place) {
  for (const RefusedValue& refusal : kRefusals)
    require(!refusal.matches(name, written), Status::kUnsupported, place, ": ", name, " is '", written,
            "', which asks for ", refusal.asks_for, "; this version does not support it");
}

ReferenceMeaning reference_meaning(std::string_view name, const std::string& written) {
  if (name == "fp16" && parse_flag(written).value_or(false))
    return {&option_tables::state_options, "mixed_precision", "fp16"};
  // Two ways to share sequences along one axis, of which files say 1 where it is the other.
  if (name == "parallelism_config_cp_size" || name == "parallelism_config_sp_size") {
    if (written == "1") return {};
    return {&option_tables::state_options, "context_parallel_size", written};
  }
  if (name != "distributed_type") return {};
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const ParallelType& type) { return is_same(type.name, written); });
  return found == std::end(kTypes) ? ReferenceMeaning() : ReferenceMeaning{found->table, "enabled", "yes"};
}

bool is_megatron(std::string_view distributed_type) { return is_same(distributed_type, "MEGATRON_LM"); }

bool is_name_of_reference_files(std::string_view name) {
  return name == "compute_environment" || name == "distributed_type";
}

}  // namespace accel
