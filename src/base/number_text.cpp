// SPDX-License-Identifier: Apache-2.0
#include "base/number_text.hpp"

#include <double-conversion/double-conversion.h>
#include <fast_float/fast_float.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace accel {
namespace {

using double_conversion::DoubleToStringConverter;

// fast_float reads what no double can hold as infinity or zero, and says so only since its version 4.
bool is_out_of_range(const char* begin, const char* end, double value) {
  if (std::isinf(value)) return std::any_of(begin, end, [](unsigned char c) { return std::isdigit(c); });
  if (value != 0) return false;
  const char* const exponent = std::find_if(begin, end, [](char c) { return c == 'e' || c == 'E'; });
  return std::any_of(begin, exponent, [](char c) { return c >= '1' && c <= '9'; });
}

}  // namespace

std::from_chars_result double_from_chars(const char* begin, const char* end, double& number) {
  double value = 0;
  const fast_float::from_chars_result result = fast_float::from_chars(begin, end, value);
  if (result.ec == std::errc::invalid_argument) return {result.ptr, result.ec};
  if (is_out_of_range(begin, result.ptr, value)) return {result.ptr, std::errc::result_out_of_range};
  number = value;
  return {result.ptr, std::errc()};
}

std::string text_of_double(double number) {
  std::string text = std::signbit(number) ? "-" : "";
  if (!std::isfinite(number)) return text + (std::isnan(number) ? "nan" : "inf");
  std::array<char, DoubleToStringConverter::kBase10MaximalLength + 1> digits{};
  bool negative = false;
  int length = 0;
  int point = 0;  // the number of digits before it
  DoubleToStringConverter::DoubleToAscii(std::fabs(number), DoubleToStringConverter::SHORTEST, 0, digits.data(),
                                         static_cast<int>(digits.size()), &negative, &length, &point);
  const auto size = static_cast<size_t>(length);
  const int first = point - 1, last = point - length;
  // The shorter way of writing; of two that are as long the one without exponent.
  if (last < -(length + 3) + (length == 1) || last > 5 - (length == 1)) {
    text.append(digits.data(), 1);
    if (length > 1) text.append(1, '.').append(digits.data() + 1, size - 1);
    text += first < 0 ? "e-" : "e+";
    return text.append(std::abs(first) < 10 ? "0" : "").append(text_of_number(std::abs(first)));
  }
  if (last > 0 && first >= 15) {  // the digits behind the shortest ones are not zeros
    std::array<char, 32> whole{};
    std::snprintf(whole.data(), whole.size(), "%.0f", std::fabs(number));
    return text + whole.data();
  }
  if (last >= 0) return text.append(digits.data(), size).append(static_cast<size_t>(last), '0');
  if (point <= 0) return text.append("0.").append(static_cast<size_t>(-point), '0').append(digits.data(), size);
  const auto before = static_cast<size_t>(point);
  return text.append(digits.data(), before).append(1, '.').append(digits.data() + before, size - before);
}

}  // namespace accel
