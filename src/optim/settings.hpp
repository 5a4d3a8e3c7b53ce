// The settings of an optimizer: a list for each kind, by which values are checked, read from state dicts and written
// into them.
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

// A field of an options struct of the header, which says which values there are and the initial one; NaN is one that
// has none.
struct Setting {
  const char* name;
  const char* key = nullptr;  // of state dicts; the name where it is null. Settings in a row with one key form a list.
  const OptionField* field = nullptr;  // none: the mode, a flag that only Optimizer::train() changes

  bool is_mode() const { return field == nullptr; }
  bool may_lack() const { return field != nullptr && field->default_value == nullptr; }
  double initial() const;
};

// The number that a field says.
double default_of(const OptionField& field);

// The mode's name in state dicts.
inline constexpr const char* kTrainMode = "train_mode";

// The settings of these names, as a struct of the header describes them.
std::vector<Setting> settings_of(const OptionTable& options, std::vector<Setting> names);

// Values by name; those without one keep their initial value.
using GivenSettings = std::vector<std::pair<const char*, std::optional<double>>>;

// Also "lr" and "weight_decay". NaN is a number that has none.
void check_setting(std::string_view name, c10::ArrayRef<Setting> settings, double value);

// A finite number of at least 0.
void require_not_negative(double value, const char* name);

// Into and from a group of a state dict. What is missing there keeps its value.
void write_settings(c10::ArrayRef<Setting> settings, c10::ArrayRef<double> values, Map& group);
std::vector<double> read_settings(c10::ArrayRef<Setting> settings, const Map& group, std::vector<double> values);

// `what` names the value in errors ("the state dict").
Map as_map(const c10::IValue& value, const std::string& what);

// The entry, or nullptr.
const c10::IValue* find(const Map& map, const char* key);

// An entry with a value for when it is missing; a wrong type is an error that names the key.
double read_number(const Map& map, const char* key, double otherwise);

}  // namespace accel::optim
