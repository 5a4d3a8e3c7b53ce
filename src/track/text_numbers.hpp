// Numbers as the shortest text that reads back as the same number.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <string>

namespace accel::track {

template <typename Number>
void append_number(std::string& out, Number number) {
  std::array<char, 32> digits{};
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  out.append(digits.data(), result.ptr);
}

// The word for a number that is not finite.
inline const char* word_of(double number) { return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity"; }

}  // namespace accel::track
