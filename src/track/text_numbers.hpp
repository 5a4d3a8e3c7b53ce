// Numbers as the shortest text that reads back as the same number.
#pragma once

#include <cmath>
#include <string>

#include "base/number_text.hpp"

namespace accel::track {

template <typename Number>
void append_number(std::string& out, Number number) {
  out += text_of_number(number);
}

// The word for a number that is not finite.
inline const char* word_of(double number) { return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity"; }

}  // namespace accel::track
