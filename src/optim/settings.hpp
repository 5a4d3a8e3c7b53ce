// SPDX-License-Identifier: Apache-2.0
// Settings (hyperparameters) of an optimizer: a table for each kind, used to check values and to read and write state
// dicts.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/option_table.hpp"

namespace accel::optim {

using Map = c10::impl::GenericDict;

// A field of an options struct of the header, which defines the valid values and the default; NaN means unset.
struct Setting {
  const char* name;
  const char* key = nullptr;           // in state dicts; null: the name. Consecutive settings with one key form a list.
  const OptionField* field = nullptr;  // null: the mode, a flag that only Optimizer::train() changes

  bool is_mode() const { return field == nullptr; }
  bool is_optional() const { return field != nullptr && field->default_value == nullptr; }
  double initial() const;
};

// The default of a field.
double default_of(const OptionField& field);

// The key of the mode in state dicts.
inline constexpr const char* kTrainMode = "train_mode";

// The settings with these names in a struct of the header.
std::vector<Setting> settings_of(const OptionTable& options, std::vector<Setting> names);

// Values by name; settings without a value have their default.
using GivenSettings = std::vector<std::pair<const char*, std::optional<double>>>;

// Also for "lr" and "weight_decay". NaN means unset.
void check_setting(std::string_view name, c10::ArrayRef<Setting> settings, double value);

// Throws unless the value is finite and at least 0.
void require_not_negative(double value, const char* name);

// To and from a group of a state dict. Settings that it lacks keep their values.
void write_settings(c10::ArrayRef<Setting> settings, c10::ArrayRef<double> values, Map& group);
std::vector<double> read_settings(c10::ArrayRef<Setting> settings, const Map& group, std::vector<double> values);

// `what` names the value in errors ("the state dict").
Map as_map(const c10::IValue& value, const std::string& what);

// The value, or null.
const c10::IValue* find(const Map& map, const char* key);

// The number of a key, or `otherwise` if it is missing; a wrong type is an error that names the key.
double read_number(const Map& map, const char* key, double otherwise);

}  // namespace accel::optim
