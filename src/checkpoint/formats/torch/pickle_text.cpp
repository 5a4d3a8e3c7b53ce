// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_text.hpp"

#include <charconv>
#include <cstdint>

#include "base/error.hpp"
#include "base/text_check.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint32_t kLastCharacter = 0x10ffff;

[[noreturn]] void fail_text(std::string_view text) {
  fail(Status::kCorrupt, "the text '", printable(text), "' has a wrong escape");
}

// `count` hexadecimal digits at the position, which is moved behind them.
uint32_t take_hex(std::string_view text, size_t& position, size_t count) {
  uint32_t number = 0;
  if (count > text.size() - position) fail_text(text);
  const char* const begin = text.data() + position;
  const auto result = std::from_chars(begin, begin + count, number, 16);
  if (result.ec != std::errc() || result.ptr != begin + count) fail_text(text);
  position += count;
  return number;
}

void append_utf8(std::string& out, uint32_t character) {
  const auto add = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto follow = [&](uint32_t shift) { add(0x80U | (character >> shift & 0x3fU)); };
  if (character < 0x80U) {
    add(character);
  } else if (character < 0x800U) {
    add(0xc0U | character >> 6U);
    follow(0);
  } else if (character < 0x10000U) {
    add(0xe0U | character >> 12U);
    follow(6);
    follow(0);
  } else {
    add(0xf0U | character >> 18U);
    follow(12);
    follow(6);
    follow(0);
  }
}

// Bytes of the escape that begins at the position, behind its backslash.
char take_escape(std::string_view text, size_t& position) {
  const char kind = text[position++];
  switch (kind) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return kind;
    case 'x':
      return static_cast<char>(take_hex(text, position, 2));
    default:
      fail_text(text);
  }
}

}  // namespace

std::string unquote_python_text(std::string_view text) {
  const bool is_quoted =
      text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.front() == text.back();
  require(is_quoted, Status::kCorrupt, "the text '", printable(text), "' has no quotes");
  const std::string_view inner = text.substr(1, text.size() - 2);
  std::string result;
  for (size_t i = 0; i < inner.size();) {
    const char byte = inner[i++];
    if (byte == '\\' && i == inner.size()) fail_text(text);
    result.push_back(byte == '\\' ? take_escape(inner, i) : byte);
  }
  return result;
}

std::string unescape_python_text(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    uint32_t character = static_cast<unsigned char>(text[i++]);
    const char kind = character == '\\' && i < text.size() ? text[i] : '\0';
    if (kind == 'u' || kind == 'U') {
      i++;
      character = take_hex(text, i, kind == 'u' ? 4 : 8);
      if (character > kLastCharacter) fail_text(text);
    }
    append_utf8(result, character);
  }
  return result;
}

std::string latin1_of(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80U) {
      result.push_back(text[i]);
      continue;
    }
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[++i]) : 0U;
    require((byte == 0xc2U || byte == 0xc3U) && (next & 0xc0U) == 0x80U, Status::kCorrupt,
            "bytes are stored as text with a character above U+00FF");
    result.push_back(static_cast<char>((byte & 3U) << 6U | (next & 0x3fU)));
  }
  return result;
}

std::string utf8_of_latin1(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size() * 3 / 2);
  for (const char byte : bytes) append_utf8(result, static_cast<unsigned char>(byte));
  return result;
}

bool is_utf8(std::string_view text) {
  for (size_t begin = 0; begin < text.size(); begin++) {  // the check stops at each NUL, which UTF-8 has
    begin += first_bad_byte(text.substr(begin));
    if (begin < text.size() && text[begin] != '\0') return false;
  }
  return true;
}

std::string printable(std::string_view text) {
  constexpr size_t kMost = 100;
  std::string result(text.substr(0, kMost));
  for (char& byte : result)
    if (static_cast<unsigned char>(byte) < 0x20U || static_cast<unsigned char>(byte) >= 0x7fU) byte = '?';
  if (text.size() > kMost) result += "...";
  return result;
}

}  // namespace accel::checkpoint
