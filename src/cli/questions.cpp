// SPDX-License-Identifier: Apache-2.0
#include "cli/questions.hpp"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel::program {
namespace {

std::string trimmed(const std::string& line) {
  constexpr const char* kBlanks = " \t\r\n";
  const size_t begin = line.find_first_not_of(kBlanks);
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(kBlanks) - begin + 1);
}

// Nothing at the end of the input.
std::optional<std::string> read_input_line() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t size = ::getline(&line, &capacity, stdin);
  const std::unique_ptr<char, decltype(&std::free)> owner(line, &std::free);
  if (size < 0) return std::nullopt;
  return std::string(line, static_cast<size_t>(size));
}

std::string shown_number(double number) {
  char shown[32];
  std::snprintf(shown, sizeof shown, "%g", number);
  return shown;
}

}  // namespace

Questions::Questions(const std::string& instead) {
  require(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1, Status::kInvalidState,
          "there is no terminal to ask questions at; ", instead);
}

void Questions::say(const std::string& line) const {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

std::string Questions::answer(const std::string& question, const std::string& otherwise) const {
  std::fputs((question + (otherwise.empty() ? "" : " [" + otherwise + "]") + ": ").c_str(), stdout);
  std::fflush(stdout);
  const auto line = read_input_line();
  require(line.has_value(), Status::kCancelled, "the answers ended early; nothing was written");
  const std::string given = trimmed(*line);
  return given.empty() ? otherwise : given;
}

bool Questions::yes(const std::string& question, bool otherwise) const {
  for (;;) {
    if (const auto flag = parse_flag(answer(question + " (yes or no)", otherwise ? "yes" : "no"))) return *flag;
    say("  expected yes or no");
  }
}

std::string Questions::choice(const std::string& question, const std::vector<std::string>& names,
                              size_t otherwise) const {
  say(question);
  // Numbers beside names that are numbers would confuse.
  const bool is_numbered = !parse_integer(names.front());
  for (size_t i = 0; i < names.size(); ++i)
    say(is_numbered ? accel::text("  ", i, "  ", names[i]) : accel::text("  ", names[i]));
  for (;;) {
    const std::string given = answer("  which", names[otherwise]);
    const auto found = std::find_if(names.begin(), names.end(), [&given](const std::string& name) {
      return strcasecmp(name.c_str(), given.c_str()) == 0;
    });
    if (found != names.end()) return *found;
    const auto number = parse_integer(given);
    if (is_numbered && number && *number >= 0 && *number < static_cast<int64_t>(names.size()))
      return names[static_cast<size_t>(*number)];
    say(is_numbered ? "  expected one of the names or numbers above" : "  expected one of the numbers above");
  }
}

int64_t Questions::integer(const std::string& question, int64_t otherwise, int64_t low, int64_t high) const {
  for (;;) {
    const auto given = parse_integer(answer(question, std::to_string(otherwise)));
    if (given && *given >= low && *given <= high) return *given;
    say(high == std::numeric_limits<int64_t>::max() ? accel::text("  expected a number of at least ", low)
                                                    : accel::text("  expected a number from ", low, " to ", high));
  }
}

double Questions::number(const std::string& question, double otherwise) const {
  for (;;) {
    const std::string given = answer(question, shown_number(otherwise));
    char* end = nullptr;
    const double value = std::strtod(given.c_str(), &end);
    if (*end == '\0' && value >= 0) return value;
    say("  expected a number of at least 0");
  }
}

std::string Questions::text(const std::string& question, const std::string& otherwise) const {
  for (;;) {
    std::string given = answer(question, otherwise);
    if (!given.empty()) return given;
    say("  expected an answer");
  }
}

}  // namespace accel::program
