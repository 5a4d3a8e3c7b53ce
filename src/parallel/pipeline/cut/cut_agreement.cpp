// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/cut/cut_agreement.hpp"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "parallel/pipeline/step_outcome.hpp"
#include "parallel/same_plan.hpp"

namespace accel::parallel {
namespace {

// The settings that each rank may have otherwise.
constexpr std::string_view kOwn[] = {"check_balance", "verify_gradients"};
// The settings of shards that decide when ranks exchange.
constexpr std::string_view kOfShards[] = {"enabled", "sharding_strategy"};

template <size_t Size>
bool has(const std::string_view (&names)[Size], std::string_view name) {
  for (const std::string_view one : names)
    if (one == name) return true;
  return false;
}

template <typename Value>
std::string value_text(const OptionField& field, const Value& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return '"' + value + '"';
  } else if constexpr (std::is_enum_v<Value>) {
    for (size_t i = 0; i < field.num_choices; i++)
      if (field.choices[i].value == static_cast<int32_t>(value)) return field.choices[i].name;
    return std::to_string(static_cast<int32_t>(value));
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? "1" : "0";
  } else {
    return text(value);
  }
}

template <typename Value>
std::string value_text(const OptionField& field, const std::optional<Value>& value) {
  return value ? value_text(field, *value) : "no value";
}

template <typename Settings, typename Wanted>
void add_lines(const Settings& settings, const Wanted& is_wanted, std::vector<std::string>& lines) {
  Settings::for_each(
      [&](const OptionField& field, const auto& setting) {
        if (is_wanted(field.name)) lines.push_back(text(field.name, ' ', value_text(field, setting.value)));
      },
      settings);
}

// The lines of check_same_plan().
std::vector<std::string> lines_of(const nn::Module& model, const nn::ModuleChain& chain,
                                  const PrepareModelSettings& settings) {
  std::vector<std::string> lines{text("a module of kind '", model.kind(), "'"), text(chain.size(), " parts")};
  for (const nn::ModulePart& part : chain) lines.push_back(text("the part '", part.name, "'"));
  const auto all = [](std::string_view name) { return !has(kOwn, name); };
  add_lines(settings.pipeline, all, lines);
  add_lines(settings.tensor_parallel, all, lines);
  add_lines(settings.expert_parallel, all, lines);
  add_lines(
      settings.fsdp, [](std::string_view name) { return has(kOfShards, name); }, lines);
  return lines;
}

}  // namespace

void agree_on_cut(const nn::Module& model, const nn::ModuleChain& chain, const PrepareModelSettings& settings,
                  const std::exception_ptr& refusal, comm::Communicator& ranks) {
  agree_on_step(ranks, 0, refusal, "cutting a model into stages", "of the job");
  check_same_plan(lines_of(model, chain, settings), ranks, "of the job");
}

}  // namespace accel::parallel
