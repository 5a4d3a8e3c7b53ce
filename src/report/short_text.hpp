// SPDX-License-Identifier: Apache-2.0
// Text of files that may be long.
#pragma once

#include <cstddef>
#include <string>

namespace accel::report {

// At most `most` bytes and "..."; cut between characters of UTF-8.
inline std::string short_text(std::string words, size_t most) {
  if (words.size() <= most) return words;
  while (most > 0 && (static_cast<unsigned char>(words[most]) & 0xc0) == 0x80) --most;
  words.resize(most);
  return words + "...";
}

}  // namespace accel::report
