// Texts in JSON, appended to a line.
#pragma once

#include <string>
#include <string_view>

namespace accel::track {

inline void append_json_text(std::string& out, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += '"';
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text.substr(begin, i - begin));
    begin = i + 1;
    if (byte >= 0x20) {
      out += '\\';
      out += text[i];
    } else if (byte == '\n') {
      out += "\\n";
    } else {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  out.append(text.substr(begin));
  out += '"';
}

}  // namespace accel::track
