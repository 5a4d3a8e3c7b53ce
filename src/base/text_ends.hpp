// SPDX-License-Identifier: Apache-2.0
// How texts begin and end.
#pragma once

#include <string_view>

namespace accel {

inline bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

inline bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Whether the name of a file ends so, and has more than that: ".json" alone is a name without extension.
inline bool has_extension(std::string_view name, std::string_view extension) {
  return name.size() > extension.size() && ends_with(name, extension);
}

}  // namespace accel
