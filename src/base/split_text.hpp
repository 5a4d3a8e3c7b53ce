// SPDX-License-Identifier: Apache-2.0
// Splits lists in texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace accel {

// "a,b" is two parts, "" none.
inline std::vector<std::string> split_text(std::string_view text, char separator = ',') {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

}  // namespace accel
