// SPDX-License-Identifier: Apache-2.0
// Numbers as text in no locale, by the interface and with the results of std::from_chars and std::to_chars, which GCC
// 10 does not have for doubles: those are converted by the library double-conversion.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>

namespace accel {

std::from_chars_result double_from_chars(const char* begin, const char* end, double& number);
std::string text_of_double(double number);

template <typename Number>
std::from_chars_result number_from_chars(const char* begin, const char* end, Number& number) {
  if constexpr (std::is_same_v<Number, double>)
    return double_from_chars(begin, end, number);
  else
    return std::from_chars(begin, end, number);
}

// Whether the whole text is a number, which is then `number`.
template <typename Number>
bool parse_whole(std::string_view text, Number& number) {
  const std::from_chars_result result = number_from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

// The shortest text that reads back as the same number.
template <typename Number>
std::string text_of_number(Number number) {
  if constexpr (std::is_same_v<Number, double>) {
    return text_of_double(number);
  } else {
    std::array<char, 24> digits{};
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
  }
}

// The word for a number that is not finite.
inline const char* nonfinite_word(double number) {
  return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
}

}  // namespace accel
