// SPDX-License-Identifier: Apache-2.0
#include "base/text_check.hpp"

#include <cstdint>
#include <cstring>

namespace accel {
namespace {

// Bytes of the UTF-8 sequence at the start of `text`; 0 for none, an overlong form, a surrogate, or more than U+10FFFF.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xc2 && first < 0xe0   ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t code = first & (0x7fU >> length);
  for (size_t i = 1; i < length; i++) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fU);
  }
  if (length == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) return 0;
  if (length == 4 && (code < 0x10000 || code > 0x10ffff)) return 0;
  return length;
}

// Whether the next eight bytes are ASCII without a NUL, as nearly all of any text.
bool are_plain(const char* bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHighBits = 0x8080808080808080;
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return ((word | (word - kOnes)) & kHighBits) == 0;
}

}  // namespace

size_t first_bad_byte(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (text.size() - i >= sizeof(uint64_t) && are_plain(text.data() + i)) {
      i += sizeof(uint64_t);
      continue;
    }
    const size_t length = text[i] == '\0' ? 0 : utf8_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return text.size();
}

std::string repaired_text(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  while (true) {
    const size_t good = first_bad_byte(text);
    repaired += text.substr(0, good);
    if (good == text.size()) return repaired;
    repaired += "\xef\xbf\xbd";
    text.remove_prefix(good + 1);
  }
}

}  // namespace accel
