// SPDX-License-Identifier: Apache-2.0
// Reads options structs by the tables of their fields, and parameters that may be unset.
#pragma once

#include <optional>
#include <string>

#include "accel.h"
#include "base/error.hpp"
#include "config/option_table.hpp"
#include "config/precedence.hpp"

namespace accel::capi {

// An options struct has a table(), an unset() one, and Settings of the engine if it has any: capi/generated/options/.
template <typename Options>
struct OptionsStruct;

// A whole, checked struct: the caller's fields, all others unset. For calls that change some settings of an object.
template <typename Options>
Options given_options(const Options* given, const char* name) {
  Options result = OptionsStruct<Options>::unset();
  accel::read_options(OptionsStruct<Options>::table(), given, name, &result);
  return result;
}

// Also takes the values of the configuration file. For calls that create an object.
template <typename Options>
Options read_options(const Options* given, const char* name) {
  Options result = given_options(given, name);
  resolve_options(OptionsStruct<Options>::table(), &result);
  return result;
}

// Fields of a struct as settings of the engine.
template <typename Options>
auto settings_of(const Options& read) {
  using Settings = typename OptionsStruct<Options>::Settings;
  Settings result;
  Settings::for_each([&read](const OptionField& field, auto& setting) { read_option(field, &read, setting); }, result);
  return result;
}

template <typename Options>
auto given_settings(const Options* given, const char* name) {
  return settings_of(given_options(given, name));
}
template <typename Options>
auto read_settings(const Options* given, const char* name) {
  auto settings = given_settings(given, name);
  resolve_settings(settings);
  return settings;
}

inline bool is_given(int32_t value) { return value != ACCEL_UNSET; }
inline bool is_given(int64_t value) { return value != ACCEL_UNSET_INT64; }
inline bool is_given(double value) { return value != ACCEL_UNSET_DOUBLE; }
inline bool is_given(const void* value) { return value != nullptr; }

// A field of a struct that was read, which leaves the setting as it is when it is unset. Enumerations of the engine
// have the numbers of the header's constants.
template <typename Setting, typename Given>
void set_given(Setting& setting, Given given) {
  if (is_given(given)) setting = static_cast<Setting>(given);
}
template <typename Setting, typename Given>
void set_given(std::optional<Setting>& setting, Given given) {
  if (is_given(given)) setting = static_cast<Setting>(given);
}

// Parameters of functions.

inline bool read_flag(int32_t value, const char* name) {
  require(value == 0 || value == 1, Status::kInvalidArgument, name, " is ", value, "; expected 0 or 1");
  return value == 1;
}

inline std::optional<bool> optional_flag(int32_t value, const char* name) {
  if (!is_given(value)) return std::nullopt;
  require(value == 0 || value == 1, Status::kInvalidArgument, name, " is ", value, "; expected 0, 1 or ACCEL_UNSET");
  return value == 1;
}

inline std::optional<std::string> optional_text(const char* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

template <typename Number>
std::optional<Number> optional_number(Number value) {
  return is_given(value) ? std::optional<Number>(value) : std::nullopt;
}

}  // namespace accel::capi
