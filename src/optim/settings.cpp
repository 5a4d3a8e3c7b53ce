// SPDX-License-Identifier: Apache-2.0
#include "optim/settings.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "config/option_text.hpp"
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

bool is_flag(const Setting& setting) { return setting.is_mode() || setting.field->kind == OptionKind::kFlag; }

bool is_choice(const Setting& setting) { return !setting.is_mode() && setting.field->kind == OptionKind::kChoice; }

void check(const Setting& setting, double value) {
  if (setting.is_mode() || (setting.is_optional() && std::isnan(value))) return;
  require(setting.field->kind == OptionKind::kNumber || value == std::floor(value), Status::kInvalidArgument,
          setting.name, " is ", value, "; expected a whole number");
  check_value(*setting.field, value, setting.name, text(value), "");
}

c10::IValue write(const Setting& setting, double value) {
  if (is_flag(setting)) return value != 0;
  if (is_choice(setting)) return integer_option_text(*setting.field, static_cast<int64_t>(value));
  if (setting.field->kind == OptionKind::kInteger) return static_cast<int64_t>(value);
  return setting.is_optional() && std::isnan(value) ? c10::IValue() : c10::IValue(value);
}

double read(const char* key, const c10::IValue& value) {
  require(value.isDouble() || value.isInt(), Status::kInvalidArgument, "\"", key, "\" of a parameter group is a ",
          tree::kind_name(value), "; expected a number");
  return value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt());
}

double read(const Setting& setting, const c10::IValue& value, double otherwise) {
  const char* const key = key_of(setting);
  if (is_flag(setting)) {
    if (value.isNone()) return otherwise;
    require(value.isBool(), Status::kInvalidArgument, "\"", key, "\" of a parameter group is a ",
            tree::kind_name(value), "; expected true or false");
    return value.toBool() ? 1 : 0;
  }
  if (is_choice(setting)) {
    if (value.isNone()) return setting.initial();
    require(value.isString(), Status::kInvalidArgument, "\"", key, "\" of a parameter group is a ",
            tree::kind_name(value), "; expected a name");
    check_option_text(*setting.field, value.toStringRef(), key, "a parameter group");
    return static_cast<double>(parse_integer_option(*setting.field, value.toStringRef()));
  }
  if (setting.is_optional() && value.isNone()) return kNone;
  return read(key, value);
}

}  // namespace

void check_setting(std::string_view name, c10::ArrayRef<Setting> settings, double value) {
  if (name == "lr") return require_not_negative(value, "lr");
  if (name == "weight_decay") return require_not_negative(value, "weight_decay");
  for (const Setting& setting : settings)
    if (name == setting.name) return check(setting, value);
}

void require_not_negative(double value, const char* name) {
  require(std::isfinite(value) && value >= 0, Status::kInvalidArgument, name, " is ", value,
          "; expected a finite number of at least 0");
}

double Setting::initial() const {
  if (is_mode()) return 1;
  return is_optional() ? kNone : default_of(*field);
}

double default_of(const OptionField& field) {
  if (field.kind == OptionKind::kNumber) return parse_number_option(field.default_value);
  return static_cast<double>(parse_integer_option(field, field.default_value));
}

std::vector<Setting> settings_of(const OptionTable& options, std::vector<Setting> names) {
  for (Setting& setting : names) {
    for (const OptionField& field : options)
      if (std::string_view(setting.name) == field.name) setting.field = &field;
    require(setting.field != nullptr || std::string_view(setting.name) == kTrainMode, Status::kInternal, options.name,
            " has no field '", setting.name, "'");
  }
  return names;
}

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
  return value == nullptr ? otherwise : read(key, *value);
}

}  // namespace accel::optim
