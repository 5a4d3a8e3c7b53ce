// SPDX-License-Identifier: Apache-2.0
// Reads lines of a stream; a lack of memory is std::bad_alloc. Header only: backend plugins use no symbol of libaccel.
#pragma once

#include <ios>
#include <istream>
#include <string>

namespace accel {

// std::getline() treats a lack of memory as the end of the stream. Read errors end the stream here, too.
inline bool read_line(std::istream& stream, std::string& line, char end = '\n') {
  try {
    stream.exceptions(std::ios_base::badbit);
    return static_cast<bool>(std::getline(stream, line, end));
  } catch (const std::ios_base::failure&) {
    return false;
  }
}

}  // namespace accel
