// Numbers as text in no locale, by the interface and with the results of std::from_chars and std::to_chars, which GCC
// 10 does not have for doubles: by the formatting of the C library, so that the library needs no newer C++ runtime than
// LibTorch's.
#pragma once

#include <locale.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace accel {
namespace number_text {

inline double read(const std::string& token, size_t& length) {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  char* end = nullptr;
  const double number = strtod_l(token.c_str(), &end, plain);
  length = static_cast<size_t>(end - token.c_str());
  return number;
}

inline std::from_chars_result parse_double(const char* begin, const char* end, double& number) {
  // strtod also reads blanks and '+' in front, and hexadecimal digits.
  const std::string token(begin, std::find_if(begin, end, [](char c) { return c == 'x' || c == 'X'; }));
  const size_t first = token.rfind('-', 0) == 0 ? 1 : 0;
  const bool may_begin = first < token.size() && token.find_first_of("0123456789.iInN", first) == first;
  size_t length = 0;
  const double value = may_begin ? read(token, length) : 0;
  if (length == 0) return {begin, std::errc::invalid_argument};
  const std::string_view mantissa = std::string_view(token).substr(0, std::min(token.find_first_of("eE"), length));
  const bool is_written_zero = mantissa.find_first_of("123456789") == std::string_view::npos;
  if ((std::isinf(value) && !is_written_zero) || (value == 0 && !is_written_zero))
    return {begin + length, std::errc::result_out_of_range};
  number = value;
  return {begin + length, std::errc()};
}

// The fewest decimal digits that read back as the number, as digits and the exponent of the first one.
inline std::string shortest_digits(double number, int& exponent) {
  std::array<char, 40> text{};
  for (int digits = number < DBL_MIN ? 1 : DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
    std::snprintf(text.data(), text.size(), "%.*e", digits - 1, number);
    if (std::strtod(text.data(), nullptr) == number) break;
  }
  const auto e = std::find(text.begin(), text.end(), 'e');
  exponent = std::atoi(&*e + 1);
  std::string digits;
  std::copy_if(text.begin(), e, std::back_inserter(digits), [](char c) { return c >= '0' && c <= '9'; });
  digits.erase(std::max<size_t>(digits.find_last_not_of('0') + 1, 1));
  return digits;
}

inline std::string text_of_double(double number) {
  std::string sign = std::signbit(number) ? "-" : "";
  if (!std::isfinite(number)) return sign + (std::isnan(number) ? "nan" : "inf");
  int first = 0;
  const std::string digits = shortest_digits(std::fabs(number), first);
  const int length = static_cast<int>(digits.size()), last = first - length + 1;
  std::array<char, 40> text{};
  // The shorter way of writing; of two that are as long the one without exponent.
  if (last < -(length + 3) + (length == 1) || last > 5 - (length == 1)) {
    std::snprintf(text.data(), text.size(), "e%c%02d", first < 0 ? '-' : '+', std::abs(first));
    return sign + digits.substr(0, 1) + (length > 1 ? "." + digits.substr(1) : "") + text.data();
  }
  if (last >= 0) {
    std::snprintf(text.data(), text.size(), "%.0f", std::fabs(number));
    return sign + text.data();
  }
  if (first < 0) return sign + "0." + std::string(static_cast<size_t>(-first - 1), '0') + digits;
  const auto whole = static_cast<size_t>(first) + 1;
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace number_text

template <typename Number>
std::from_chars_result number_from_chars(const char* begin, const char* end, Number& number) {
  if constexpr (std::is_same_v<Number, double>)
    return number_text::parse_double(begin, end, number);
  else
    return std::from_chars(begin, end, number);
}

// The shortest text that reads back as the same number.
template <typename Number>
std::string text_of_number(Number number) {
  if constexpr (std::is_same_v<Number, double>) {
    return number_text::text_of_double(number);
  } else {
    std::array<char, 24> digits{};
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
  }
}

}  // namespace accel
