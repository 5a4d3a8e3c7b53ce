// SPDX-License-Identifier: Apache-2.0
#include "track/event_frame.hpp"

#include <array>
#include <cstdint>

namespace accel::track {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

// Tables for eight bytes at once: table[k] is table[0] of a byte that k zero bytes follow.
constexpr Table make_table() {
  Table table{};
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; bit++) rest = (rest & 1) != 0 ? (rest >> 1) ^ 0x82f63b78U : rest >> 1;
    table[0][byte] = rest;
  }
  for (size_t k = 1; k < 8; k++)
    for (size_t byte = 0; byte < 256; byte++)
      table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 0xff];
  return table;
}

constexpr Table kTable = make_table();

uint32_t masked(uint32_t checksum) { return ((checksum >> 15) | (checksum << 17)) + 0xa282ead8U; }

template <typename Number>
void append_little_endian(std::string& out, Number number) {
  for (size_t i = 0; i < sizeof number; i++) out += static_cast<char>((number >> (8 * i)) & 0xff);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t rest = 0xffffffffU;
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const uint32_t low =
        rest ^ (uint32_t{at[0]} | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24);
    rest = kTable[7][low & 0xff] ^ kTable[6][(low >> 8) & 0xff] ^ kTable[5][(low >> 16) & 0xff] ^ kTable[4][low >> 24] ^
           kTable[3][at[4]] ^ kTable[2][at[5]] ^ kTable[1][at[6]] ^ kTable[0][at[7]];
  }
  for (; left > 0; left--, at++) rest = kTable[0][(rest ^ *at) & 0xff] ^ (rest >> 8);
  return ~rest;
}

void append_frame(std::string& out, std::string_view content) {
  const size_t begin = out.size();
  append_little_endian(out, static_cast<uint64_t>(content.size()));
  append_little_endian(out, masked(crc32c(std::string_view(out).substr(begin, 8))));
  out.append(content);
  append_little_endian(out, masked(crc32c(content)));
}

}  // namespace accel::track
