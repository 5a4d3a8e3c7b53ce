#include "launch/option_text.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel::launch {
namespace {

std::string choices(const OptionField& field, const char* separator) {
  std::string listed;
  for (size_t index = 0; index < field.num_choices; ++index)
    listed += text(index == 0 ? "" : separator, field.choices[index].name);
  return listed;
}

bool is_integer_within(const OptionInterval& interval, const std::string& value) {
  int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stopped, problem] = std::from_chars(value.data(), end, number);
  return problem == std::errc() && stopped == end && interval.contains(static_cast<double>(number));
}

bool is_number_within(const OptionInterval& interval, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  return end != value.c_str() && *end == '\0' && interval.contains(number);
}

bool can_have(const OptionField& field, const std::string& value) {
  switch (field.kind) {
    case OptionKind::kFlag:
      return parse_flag(value).has_value();
    case OptionKind::kInteger:
      return is_integer_within(field.interval, value);
    case OptionKind::kNumber:
      return is_number_within(field.interval, value);
    case OptionKind::kChoice:
      return std::any_of(field.choices, field.choices + field.num_choices,
                         [&value](const OptionChoice& choice) { return value == choice.name; });
    case OptionKind::kText:
      return !value.empty();
    case OptionKind::kObject:
    case OptionKind::kReserved:
      return false;
  }
  return false;
}

// "an integer from 1 to 99", "one of no, fp16"
std::string expected_value(const OptionField& field) {
  switch (field.kind) {
    case OptionKind::kFlag:
      return "yes or no";
    case OptionKind::kInteger:
      return "an integer " + field.interval.text();
    case OptionKind::kNumber:
      return "a number " + field.interval.text();
    case OptionKind::kChoice:
      return "one of " + choices(field, ", ");
    default:
      return "a text";
  }
}

// Of a flag it is what 1 means.
std::string meaning(const OptionField& field) {
  constexpr std::string_view kWhenSet = "1: ";
  std::string_view shown = field.meaning();
  if (shown.substr(0, kWhenSet.size()) == kWhenSet) shown.remove_prefix(kWhenSet.size());
  std::string result(shown);
  if (!result.empty()) result[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(result[0])));
  return result;
}

std::string default_text(const OptionField& field) {
  if (field.default_words != nullptr) return text(" Default: ", field.default_words);
  if (field.default_value == nullptr) return "";
  if (field.kind != OptionKind::kFlag) return text(" Default ", field.default_value);
  return field.default_value == std::string_view("1") ? " Default yes" : " Default no";
}

}  // namespace

std::string option_name(const OptionField& field) {
  std::string name = field.name;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string value_name(const OptionField& field) {
  switch (field.kind) {
    case OptionKind::kFlag:
      return "[=no]";
    case OptionKind::kInteger:
      return "N";
    case OptionKind::kNumber:
      return "NUMBER";
    case OptionKind::kChoice:
      return choices(field, "|");
    default:
      return "TEXT";
  }
}

std::string describe(const OptionField& field) {
  return text(meaning(field), field.variable == nullptr ? "" : text(" Sets ", field.variable, "."),
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

void check_value(const OptionField& field, const std::string& value) {
  require(can_have(field, value), Status::kInvalidArgument, "--", option_name(field), " is '", value, "'; expected ",
          expected_value(field));
}

}  // namespace accel::launch
