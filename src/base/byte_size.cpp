// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.hpp"

#include <cmath>
#include <iterator>
#include <string>

#include "base/error.hpp"
#include "base/number_text.hpp"

namespace accel {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"GIB", 1 << 30}, {"MIB", 1 << 20}, {"KIB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}};

bool has_unit(std::string_view text, std::string_view unit) {
  if (text.size() < unit.size()) return false;
  const std::string_view end = text.substr(text.size() - unit.size());
  for (size_t i = 0; i < unit.size(); i++) {
    const char letter = end[i];
    if ((letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter) != unit[i]) return false;
  }
  return true;
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// A number without the spaces around it, and without "_" between its digits.
std::string plain_number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  std::string number;
  for (size_t i = 0; i < text.size(); i++) {
    const bool separates =
        text[i] == '_' && i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (!separates) number += text[i];
  }
  return number;
}

}  // namespace

int64_t parse_byte_size(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!has_unit(text, unit.name)) continue;
    const std::string digits = plain_number(text.substr(0, text.size() - unit.name.size()));
    double number = -1;
    const auto result = number_from_chars(digits.data(), digits.data() + digits.size(), number);
    const double bytes = std::floor(number * unit.bytes);
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size() || !(bytes >= 0 && bytes < 9e18)) break;
    const bool is_bits = unit.name.size() == 2 && text.back() == 'b';
    return static_cast<int64_t>(bytes) / (is_bits ? 8 : 1);
  }
  fail(Status::kInvalidArgument, "size '", text,
       "' is not known; expected a number of bytes, or one with GiB, MiB, KiB, GB, MB or KB, as \"8GiB\"");
}

}  // namespace accel
