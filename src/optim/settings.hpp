// The settings of an optimizer: a table for each kind, by which values are checked, read from state dicts and written
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

namespace accel::optim {

using Map = c10::impl::GenericDict;

// Which values there are.
enum class Range : uint8_t {
  kNumber,       // any finite one
  kNotNegative,  // finite
  kNotPositive,  // finite
  kFromOne,      // finite
  kDecayRate,    // in [0, 1)
  kOptional,     // not negative, or NaN for none
  kFlag,         // 0 or 1
  kMode,         // 0 or 1, which only Optimizer::train() changes
  kSteps,        // 1 to 99
  kChoice,       // the place in `choices`
};

struct Setting {
  const char* name;
  double initial;
  Range range;
  const char* key = nullptr;  // of state dicts; the name where it is null. Settings in a row with one key form a list.
  c10::ArrayRef<const char*> choices = {};
};

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
