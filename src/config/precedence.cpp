#include "config/precedence.hpp"

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel {
namespace {

[[noreturn]] void refuse(const OptionField& field, const OptionText& given, const std::string& expected) {
  fail(Status::kInvalidArgument, field.name, " is '", given.text, "' (from ", given.source, "); expected ", expected);
}

int64_t parse_choice(const OptionField& field, const OptionText& given) {
  std::string known;
  for (size_t i = 0; i < field.num_choices; ++i) {
    if (given.text == field.choices[i].name) return field.choices[i].value;
    known += text(i == 0 ? "" : ", ", field.choices[i].name);
  }
  refuse(field, given, "one of " + known);
}

}  // namespace

std::optional<OptionText> find_option_text(const OptionField& field) {
  if (field.variable == nullptr) return std::nullopt;
  const auto value = environment_text(field.variable);
  if (!value) return std::nullopt;
  return OptionText{*value, field.variable};
}

int64_t parse_integer_option(const OptionField& field, const OptionText& given) {
  if (field.kind == OptionKind::kChoice) return parse_choice(field, given);
  if (field.kind == OptionKind::kFlag) {
    const auto flag = parse_flag(given.text);
    if (!flag) refuse(field, given, kFlagWords);
    return *flag ? 1 : 0;
  }
  const auto number = parse_integer(given.text);
  if (!number) refuse(field, given, "an integer");
  check_value(field, static_cast<double>(*number), field.name, given.text, given.source);
  return *number;
}

double parse_number_option(const OptionField& field, const OptionText& given) {
  char* end = nullptr;
  const double number = std::strtod(given.text.c_str(), &end);
  if (end == given.text.c_str() || *end != '\0') refuse(field, given, "a number");
  check_value(field, number, field.name, given.text, given.source);
  return number;
}

std::string integer_option_text(const OptionField& field, int64_t value) {
  if (field.kind == OptionKind::kFlag) return value != 0 ? "yes" : "no";
  for (size_t i = 0; i < field.num_choices; ++i)
    if (field.choices[i].value == value) return field.choices[i].name;
  return std::to_string(value);
}

}  // namespace accel
