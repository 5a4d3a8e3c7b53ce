// SPDX-License-Identifier: Apache-2.0
#include "accelerator/deepspeed_plugins.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "accelerator/prepared_objects.hpp"
#include "base/error.hpp"
#include "base/name_list.hpp"
#include "config/deepspeed_config.hpp"

namespace accel::accelerator {
namespace {

bool is_name_alone(DeepspeedSettings given) {
  int fields = 0;
  DeepspeedSettings::for_each(
      [&](const auto& /*field*/, const auto& setting) { fields += setting.is_default() ? 0 : 1; }, given);
  return fields == 1;
}

bool are_equal(DeepspeedSettings one, DeepspeedSettings other) {
  bool equal = true;
  DeepspeedSettings::for_each([&](const auto& /*field*/, const auto& first,
                                  const auto& second) { equal = equal && first.value == second.value; },
                              one, other);
  return equal;
}

std::string name_of(const ModelEntry& entry) {
  return entry.deepspeed_settings == nullptr ? std::string() : entry.deepspeed_settings->plugin_name.value;
}

}  // namespace

DeepspeedSettings find_deepspeed_plugin(const DeepspeedSettings& given, const std::vector<ModelEntry>& models) {
  const std::string& name = given.plugin_name;
  if (name.empty()) return given;
  const auto found =
      std::find_if(models.begin(), models.end(), [&](const ModelEntry& entry) { return name_of(entry) == name; });
  const bool is_alone = is_name_alone(given);
  if (found != models.end()) {
    require(is_alone || are_equal(given, *found->deepspeed_settings), Status::kInvalidArgument,
            "deepspeed.plugin_name '", name,
            "' has other settings already, those of a model that is prepared; expected the name alone, or another one");
    return *found->deepspeed_settings;
  }
  if (resolve_deepspeed_settings(given).enabled) return given;
  require(is_alone, Status::kInvalidArgument, "deepspeed.plugin_name is '", name,
          "' and deepspeed.enabled is 0; expected 1 for settings with a name");
  std::vector<std::string> known;
  for (const ModelEntry& entry : models) {
    const std::string one = name_of(entry);
    if (!one.empty() && std::find(known.begin(), known.end(), one) == known.end()) known.push_back(one);
  }
  fail(Status::kNotFound, "no model is prepared with deepspeed.plugin_name '", name, "'; expected ",
       known.empty() ? "its settings with the name" : list_names(known) + ", or settings with the name");
}

}  // namespace accel::accelerator
