#include "optim/settings.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

const char* key_of(const Setting& setting) { return setting.key == nullptr ? setting.name : setting.key; }

// Settings [begin, the result) are one entry of a state dict.
size_t end_of_entry(c10::ArrayRef<Setting> settings, size_t begin) {
  const std::string_view key = key_of(settings[begin]);
  size_t end = begin + 1;
  while (end < settings.size() && key == key_of(settings[end])) ++end;
  return end;
}

bool is_allowed(const Setting& setting, double value) {
  if (setting.range == Range::kOptional && std::isnan(value)) return true;
  if (!std::isfinite(value)) return false;
  switch (setting.range) {
    case Range::kNumber:
      return true;
    case Range::kNotNegative:
    case Range::kOptional:
      return value >= 0;
    case Range::kNotPositive:
      return value <= 0;
    case Range::kFromOne:
      return value >= 1;
    case Range::kDecayRate:
      return value >= 0 && value < 1;
    case Range::kFlag:
    case Range::kMode:
      return value == 0 || value == 1;
    case Range::kSteps:
      return value >= 1 && value <= 99 && value == std::floor(value);
    case Range::kChoice:
      return value >= 0 && value < static_cast<double>(setting.choices.size()) && value == std::floor(value);
  }
  return false;
}

std::string expectation(const Setting& setting) {
  switch (setting.range) {
    case Range::kNumber:
      return "a finite number";
    case Range::kNotNegative:
    case Range::kOptional:
      return "a finite number of at least 0";
    case Range::kNotPositive:
      return "a finite number of at most 0";
    case Range::kFromOne:
      return "a finite number of at least 1";
    case Range::kDecayRate:
      return "a number in [0, 1)";
    case Range::kFlag:
    case Range::kMode:
      return "0 or 1";
    case Range::kSteps:
      return "a whole number from 1 to 99";
    case Range::kChoice:
      return text("a whole number from 0 to ", setting.choices.size() - 1);
  }
  return "";
}

void check(const Setting& setting, double value) {
  require(is_allowed(setting, value), Status::kInvalidArgument, setting.name, " is ", value, "; expected ",
          expectation(setting));
}

c10::IValue write(const Setting& setting, double value) {
  switch (setting.range) {
    case Range::kOptional:
      return std::isnan(value) ? c10::IValue() : c10::IValue(value);
    case Range::kFlag:
    case Range::kMode:
      return value != 0;
    case Range::kSteps:
      return static_cast<int64_t>(value);
    case Range::kChoice:
      return std::string(setting.choices[static_cast<size_t>(value)]);
    default:
      return value;
  }
}

double read(const Setting& setting, const c10::IValue& value, double otherwise) {
  if (setting.range == Range::kOptional && value.isNone()) return kNone;
  if (setting.range == Range::kFlag || setting.range == Range::kMode) {
    if (value.isNone()) return otherwise;
    require(value.isBool(), Status::kInvalidArgument, "\"", key_of(setting), "\" of a parameter group is a ",
            tree::kind_name(value), "; expected true or false");
    return value.toBool() ? 1 : 0;
  }
  if (setting.range == Range::kChoice) {
    if (value.isNone()) return setting.initial;
    require(value.isString(), Status::kInvalidArgument, "\"", key_of(setting), "\" of a parameter group is a ",
            tree::kind_name(value), "; expected a name");
    for (size_t i = 0; i < setting.choices.size(); ++i)
      if (value.toStringRef() == setting.choices[i]) return static_cast<double>(i);
    fail(Status::kInvalidArgument, "\"", key_of(setting), "\" of a parameter group is \"", value.toStringRef(),
         "\"; expected \"", c10::Join("\" or \"", setting.choices), "\"");
  }
  require(value.isDouble() || value.isInt(), Status::kInvalidArgument, "\"", key_of(setting),
          "\" of a parameter group is a ", tree::kind_name(value), "; expected a number");
  return value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt());
}

}  // namespace

void check_setting(std::string_view name, c10::ArrayRef<Setting> settings, double value) {
  if (name == "lr") return require_not_negative(value, "lr");
  if (name == "weight_decay") return require_not_negative(value, "weight_decay");
  for (const Setting& setting : settings)
    if (name == setting.name) return check(setting, value);
}

void require_not_negative(double value, const char* name) { check({name, 0, Range::kNotNegative}, value); }

void write_settings(c10::ArrayRef<Setting> settings, c10::ArrayRef<double> values, Map& group) {
  for (size_t begin = 0; begin < settings.size();) {
    const size_t end = end_of_entry(settings, begin);
    if (end == begin + 1) {
      group.insert(key_of(settings[begin]), write(settings[begin], values[begin]));
    } else {
      auto list = tree::new_list();
      for (size_t i = begin; i < end; ++i) list.push_back(write(settings[i], values[i]));
      group.insert(key_of(settings[begin]), list);
    }
    begin = end;
  }
}

std::vector<double> read_settings(c10::ArrayRef<Setting> settings, const Map& group, std::vector<double> values) {
  for (size_t begin = 0; begin < settings.size();) {
    const size_t end = end_of_entry(settings, begin);
    if (const c10::IValue* const entry = find(group, key_of(settings[begin])); entry != nullptr) {
      const bool is_list = tree::is_sequence(*entry);
      require((end == begin + 1) != is_list && (!is_list || tree::sequence_items(*entry).size() == end - begin),
              Status::kInvalidArgument, "\"", key_of(settings[begin]), "\" of a parameter group is a ",
              tree::kind_name(*entry), "; expected ",
              end == begin + 1 ? std::string("a number") : text("a list of ", end - begin, " numbers"));
      for (size_t i = begin; i < end; ++i)
        values[i] = read(settings[i], is_list ? tree::sequence_items(*entry)[i - begin] : *entry, values[i]);
    }
    begin = end;
  }
  for (size_t i = 0; i < settings.size(); ++i) check(settings[i], values[i]);
  return values;
}

Map as_map(const c10::IValue& value, const std::string& what) {
  require(value.isGenericDict() && value.toGenericDict().keyType()->kind() == c10::TypeKind::StringType,
          Status::kInvalidArgument, what, " is a ", tree::kind_name(value), "; expected a map");
  return value.toGenericDict();
}

const c10::IValue* find(const Map& map, const char* key) {
  const auto entry = map.find(key);
  return entry == map.end() ? nullptr : &entry->value();
}

double read_number(const Map& map, const char* key, double otherwise) {
  const c10::IValue* const value = find(map, key);
  return value == nullptr ? otherwise : read({key, otherwise, Range::kNumber}, *value, otherwise);
}

}  // namespace accel::optim
