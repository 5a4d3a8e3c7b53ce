// SPDX-License-Identifier: Apache-2.0
#include "json/json_writer.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/number_text.hpp"
#include "base/text_check.hpp"

namespace accel {
namespace {

bool is_plain(unsigned char byte, JsonEscapes escapes) {
  if (byte < 0x20 || byte == '"' || byte == '\\') return false;
  if (escapes == JsonEscapes::kAscii) return byte < 0x7f;
  return escapes == JsonEscapes::kNeeded || (byte != 0x7f && byte != '<' && byte != '>' && byte != '&');
}

void append_code_unit(std::string& out, uint32_t unit) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\u";
  for (unsigned shift = 16; shift > 0;) out += kDigits[unit >> (shift -= 4) & 15U];
}

// The character of UTF-8 that begins at `position`, which moves behind it.
uint32_t take_character(std::string_view text, size_t& position) {
  const auto first = static_cast<unsigned char>(text[position++]);
  if (first < 0x80U) return first;
  const int following = first >= 0xf0U ? 3 : first >= 0xe0U ? 2 : 1;
  uint32_t character = first & (0x3fU >> following);
  for (int i = 0; i < following; i++)
    character = character << 6U | (static_cast<unsigned char>(text[position++]) & 0x3fU);
  return character;
}

void append_escape(std::string& out, uint32_t character) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  const size_t place = character < 0x80U ? kShort.find(static_cast<char>(character)) : std::string_view::npos;
  if (place != std::string_view::npos) {
    out += '\\';
    out += kLetters[place];
  } else if (character < 0x10000U) {
    append_code_unit(out, character);
  } else {  // as UTF-16
    append_code_unit(out, 0xd800U + ((character - 0x10000U) >> 10U));
    append_code_unit(out, 0xdc00U + ((character - 0x10000U) & 0x3ffU));
  }
}

}  // namespace

void append_json_text(std::string& out, std::string_view text, JsonEscapes escapes) {
  if (escapes == JsonEscapes::kHtml && first_bad_byte(text) != text.size())
    return append_json_text(out, repaired_text(text), escapes);
  out += '"';
  size_t copied = 0;
  for (size_t at = 0; at < text.size();) {
    if (is_plain(static_cast<unsigned char>(text[at]), escapes)) {
      at++;
      continue;
    }
    out.append(text.substr(copied, at - copied));
    append_escape(out, take_character(text, at));
    copied = at;
  }
  out.append(text.substr(copied));
  out += '"';
}

void JsonWriter::separate() {
  if (!is_first_) *out_ += ',';
  is_first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  *out_ += bracket;
  is_first_ = true;
}

void JsonWriter::close(char bracket) {
  *out_ += bracket;
  is_first_ = false;
}

void JsonWriter::name(std::string_view name) {
  text(name);
  *out_ += ':';
  is_first_ = true;
}

void JsonWriter::text(std::string_view words) {
  separate();
  append_json_text(*out_, words, escapes_);
}

void JsonWriter::number(double number) {
  if (!std::isfinite(number)) return text(nonfinite_word(number));
  written(text_of_number(number));
}

void JsonWriter::short_number(double number) {
  if (!std::isfinite(number)) return text(nonfinite_word(number));
  std::array<char, 32> digits{};
  constexpr int kDigits = 6;
  std::snprintf(digits.data(), digits.size(), "%.*g", kDigits, number);  // the program has no locale but C's
  written(digits.data());
}

void JsonWriter::value(const Json& value) {
  if (value.is_null()) return null();
  if (value.flag() != nullptr) return flag(*value.flag());
  if (value.digits() != nullptr) return written(*value.digits());
  if (value.text() != nullptr) return text(*value.text());
  if (value.items() != nullptr) {
    begin_list();
    for (const Json& item : *value.items()) this->value(item);
    return end_list();
  }
  begin_object();
  for (const auto& [key, member] : *value.members()) {
    name(key);
    this->value(member);
  }
  end_object();
}

void JsonWriter::written(std::string_view value) {
  separate();
  *out_ += value;
}

std::string print_json(const Json& value) {
  std::string out;
  JsonWriter(out).value(value);
  return out;
}

}  // namespace accel
