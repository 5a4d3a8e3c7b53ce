// SPDX-License-Identifier: Apache-2.0
// The first line of a message that has several.
#pragma once

#include <string>

namespace accel {

// Without blank lines before it.
inline std::string first_line(std::string message) {
  message.erase(0, message.find_first_not_of(" \t\r\n"));
  return message.substr(0, message.find('\n'));
}

}  // namespace accel
