// SPDX-License-Identifier: Apache-2.0
#include "cli/option_help.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "base/error.hpp"
#include "config/option_text.hpp"

namespace accel::program {
namespace {

// The help of a flag says what 1 means.
std::string meaning(const OptionField& field) {
  constexpr std::string_view kWhenSet = "1: ";
  std::string_view shown = field.meaning();
  if (shown.substr(0, kWhenSet.size()) == kWhenSet) shown.remove_prefix(kWhenSet.size());
  std::string result(shown);
  if (!result.empty()) result[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(result[0])));
  return result;
}

// Whether the names would not fit beside the option.
bool has_many_choices(const OptionField& field) {
  constexpr size_t kMostLetters = 72;
  return field.kind == OptionKind::kChoice && choice_names(field, "|").size() > kMostLetters;
}

std::string default_text(const OptionField& field) {
  if (field.default_words != nullptr) return text(" Default: ", field.default_words);
  if (field.default_value == nullptr) return "";
  if (field.kind != OptionKind::kFlag) return text(" Default ", field.default_value);
  return field.default_value == std::string_view("1") ? " Default yes" : " Default no";
}

}  // namespace

std::string value_name(const OptionField& field) {
  switch (field.kind) {
    case OptionKind::kFlag:
      return "[=no]";
    case OptionKind::kInteger:
      return "N";
    case OptionKind::kNumber:
      return "NUMBER";
    case OptionKind::kChoice:
      return has_many_choices(field) ? "NAME" : choice_names(field, "|");
    default:
      return "TEXT";
  }
}

std::string describe(const OptionField& field) {
  const std::string choices = has_many_choices(field) ? text(" One of ", choice_names(field, ", "), ".") : "";
  return text(meaning(field), choices, field.variable == nullptr ? "" : text(" Sets ", field.variable, "."),
              default_text(field));
}

std::string help_row(const std::string& left, const std::string& description) {
  constexpr size_t kColumn = 36, kWidth = 118;
  std::string rows, line = "  " + left;
  const auto end_line = [&rows, &line] {
    rows += line + '\n';
    line.clear();
  };
  if (line.size() >= kColumn) end_line();
  std::istringstream words(description);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kWidth) end_line();
    line.resize(std::max(line.size(), kColumn), ' ');
    line += line.size() == kColumn ? word : ' ' + word;
  }
  end_line();
  return rows;
}

}  // namespace accel::program
