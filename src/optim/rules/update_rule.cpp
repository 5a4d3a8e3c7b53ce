// SPDX-License-Identifier: Apache-2.0
#include "optim/rules/update_rule.hpp"

#include <string_view>
#include <utility>

namespace accel::optim {

UpdateRule::UpdateRule(const OptionTable& options, std::vector<Setting> names, const std::vector<Setting>& further) {
  names.insert(names.end(), further.begin(), further.end());
  settings_ = settings_of(options, std::move(names));
  constexpr std::string_view kBefore = "accel_", kBehind = "_options_t";
  const std::string_view table = options.name;
  name_ = table.substr(kBefore.size(), table.size() - kBefore.size() - kBehind.size());
  for (const OptionField& field : options) {
    const std::string_view name = field.name;
    if (field.default_value == nullptr) continue;
    if (name == "lr") default_lr_ = default_of(field);
    if (name == "weight_decay") default_weight_decay_ = default_of(field);
  }
}

}  // namespace accel::optim
