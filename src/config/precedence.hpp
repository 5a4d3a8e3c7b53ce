// SPDX-License-Identifier: Apache-2.0
// Precedence of option values: explicit call > environment > configuration file > default. For all structs, those of
// the header and the engine's settings (config/generated/settings/).
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include "config/configuration_file.hpp"
#include "config/option_table.hpp"
#include "config/option_text.hpp"
#include "config/setting.hpp"

namespace accel {

// A value from a variable or the configuration file.
struct OptionText {
  std::string text;
  std::string source;  // "ACCELERATE_USE_CPU", "job.yaml:3"
};

// Returns the option as it is written, without checks. `file` may be null.
std::optional<OptionText> find_written_option(const OptionTable& table, const OptionField& field,
                                              const ConfigurationFile* file);
// An invalid value is an error that names the source.
std::optional<OptionText> find_option_text(const OptionTable& table, const OptionField& field,
                                           const ConfigurationFile* file);

// Sets the fields of a struct of the header that the call left unset. Texts are stored until the process ends.
void resolve_options(const OptionTable& table, void* options);
// The fields of a struct of the application, which may be of another version. `name` is the parameter's.
void resolve_given_options(const OptionTable& table, void* given, const char* name);

namespace precedence {

template <typename T>
struct Plain {
  using Type = T;
};
template <typename T>
struct Plain<std::optional<T>> {
  using Type = T;
};

template <typename T>
T parse(const OptionField& field, const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>)
    return text;
  else if constexpr (std::is_same_v<T, double>)
    return parse_number_option(text);
  else
    return static_cast<T>(parse_integer_option(field, text));
}

template <typename T>
std::string print(const OptionField& field, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, double>) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return integer_option_text(field, static_cast<int64_t>(value));
  }
}
template <typename T>
std::string print(const OptionField& field, const std::optional<T>& value) {
  return value ? print(field, *value) : field.default_words == nullptr ? "" : field.default_words;
}

template <typename T>
void check(const OptionField& field, const T& value, const std::string& source) {
  if constexpr (!std::is_same_v<T, std::string>)
    check_value(field, static_cast<double>(value), field.name, print(field, value), source == "call" ? "" : source);
}
template <typename T>
void check(const OptionField& field, const std::optional<T>& value, const std::string& source) {
  if (value) check(field, *value, source);
}

}  // namespace precedence

// A field of a struct of the header, if it is set.
template <typename T>
void read_option(const OptionField& field, const void* options, Setting<T>& setting) {
  if (is_unset(field, options)) return;
  using Plain = typename precedence::Plain<T>::Type;
  if constexpr (std::is_same_v<Plain, std::string>)
    setting = text_option(field, options);
  else if constexpr (std::is_same_v<Plain, double>)
    setting = number_option(field, options);
  else
    setting = static_cast<Plain>(integer_option(field, options));
}

// Sets the settings that the call left unset.
template <typename Settings>
void resolve_settings(Settings& settings) {
  const ConfigurationFile* const file = ConfigurationFile::of_environment();
  Settings::for_each(
      [file](const OptionField& field, auto& setting) {
        if (!setting.is_default()) return;
        const auto found = find_option_text(Settings::table(), field, file);
        if (!found) return;
        using T = typename precedence::Plain<decltype(setting.value)>::Type;
        setting.set(precedence::parse<T>(field, found->text), found->source);
      },
      settings);
}

// Checks numbers that C++ code set; those of the header's structs were checked when they were read.
template <typename Settings>
void check_settings(const Settings& settings) {
  Settings::for_each(
      [](const OptionField& field, const auto& setting) { precedence::check(field, setting.value, setting.source); },
      settings);
}

// "name = value (source)", one per line.
template <typename Settings>
std::string describe_settings(const Settings& settings) {
  std::string lines;
  Settings::for_each(
      [&lines](const OptionField& field, const auto& setting) {
        lines.append(field.name).append(" = ").append(precedence::print(field, setting.value));
        lines.append(" (").append(setting.source).append(")\n");
      },
      settings);
  return lines;
}

}  // namespace accel
