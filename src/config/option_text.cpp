// SPDX-License-Identifier: Apache-2.0
#include "config/option_text.hpp"

#include <strings.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel {
namespace {

std::optional<double> parse_number(const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (end == value.c_str() || *end != '\0') return std::nullopt;
  return number;
}

bool can_have(const OptionField& field, const std::string& value) {
  switch (field.kind) {
    case OptionKind::kFlag:
      return parse_flag(value).has_value();
    case OptionKind::kInteger: {
      const auto number = parse_integer(value);
      return number && field.interval.contains(static_cast<double>(*number));
    }
    case OptionKind::kNumber: {
      const auto number = parse_number(value);
      return number && field.interval.contains(*number);
    }
    case OptionKind::kChoice:
      return find_choice(field, value) != nullptr;
    case OptionKind::kText:
      return !value.empty();
    case OptionKind::kObject:
    case OptionKind::kReserved:
      return false;
  }
  return false;
}

// Accelerate has other words for some choices.
std::string word_of_choice(const std::string& written) {
  constexpr std::pair<const char*, const char*> kWords[] = {{"allgather", "all_gather"}, {"alltoall", "ring"}};
  for (const auto& [of_reference, own] : kWords)
    if (strcasecmp(written.c_str(), of_reference) == 0) return own;
  return written;
}

}  // namespace

const OptionChoice* find_choice(const OptionField& field, const std::string& given) {
  const std::string written = word_of_choice(given);
  const auto number = parse_integer(written);
  for (size_t i = 0; i < field.num_choices; ++i) {
    const OptionChoice& choice = field.choices[i];
    if (number ? *number == choice.value : strcasecmp(written.c_str(), choice.name) == 0) return &choice;
  }
  return nullptr;
}

std::string choice_names(const OptionField& field, const char* separator) {
  std::string listed;
  for (size_t i = 0; i < field.num_choices; ++i) listed += text(i == 0 ? "" : separator, field.choices[i].name);
  return listed;
}

std::string expected_text(const OptionField& field) {
  switch (field.kind) {
    case OptionKind::kFlag:
      return "yes or no";
    case OptionKind::kInteger:
      return "an integer " + field.interval.text();
    case OptionKind::kNumber:
      return "a number " + field.interval.text();
    case OptionKind::kChoice:
      return "one of " + choice_names(field, ", ");
    default:
      return "a text";
  }
}

void check_option_text(const OptionField& field, const std::string& value, std::string_view name,
                       std::string_view source) {
  require(can_have(field, value), Status::kInvalidArgument, name, " is '", value, "'", source.empty() ? "" : " (from ",
          source, source.empty() ? "" : ")", "; expected ", expected_text(field));
}

int64_t parse_integer_option(const OptionField& field, const std::string& value) {
  if (field.kind == OptionKind::kFlag) return parse_flag(value).value() ? 1 : 0;
  return field.kind == OptionKind::kChoice ? find_choice(field, value)->value : parse_integer(value).value();
}

double parse_number_option(const std::string& value) { return parse_number(value).value(); }

std::string integer_option_text(const OptionField& field, int64_t value) {
  if (field.kind == OptionKind::kFlag) return value != 0 ? "yes" : "no";
  for (size_t i = 0; i < field.num_choices; ++i)
    if (field.choices[i].value == value) return field.choices[i].name;
  return std::to_string(value);
}

}  // namespace accel
