#include "report/json_writer.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/number_text.hpp"
#include "base/text_check.hpp"

namespace accel::report {

void JsonWriter::separate() {
  if (!is_first_) out_ += ',';
  is_first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  is_first_ = true;
}

void JsonWriter::close(char bracket) {
  out_ += bracket;
  is_first_ = false;
}

void JsonWriter::name(std::string_view name) {
  text(name);
  out_ += ':';
  is_first_ = true;
}

void JsonWriter::text(std::string_view words) {
  separate();
  out_ += '"';
  while (true) {
    const size_t good = first_bad_byte(words);
    for (const char letter : words.substr(0, good)) {
      const auto code = static_cast<unsigned char>(letter);
      if (code < 0x20 || code == 0x7f || letter == '"' || letter == '\\' || letter == '<' || letter == '>' ||
          letter == '&') {
        std::array<char, 8> escaped{};
        std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(code));
        out_ += escaped.data();
      } else {
        out_ += letter;
      }
    }
    if (good == words.size()) break;
    out_ += "\\ufffd";
    words.remove_prefix(good + 1);
  }
  out_ += '"';
}

void JsonWriter::integer(int64_t number) {
  separate();
  out_ += std::to_string(number);
}

void JsonWriter::number(double number) {
  if (!std::isfinite(number)) return text(std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
  separate();
  std::array<char, 32> digits{};
  constexpr int kDigits = 6;
  std::snprintf(digits.data(), digits.size(), "%.*g", kDigits, number);  // the program has no locale but C's
  out_ += digits.data();
}

void JsonWriter::exact_number(double number) {
  if (!std::isfinite(number)) return this->number(number);
  separate();
  out_ += text_of_number(number);
}

void JsonWriter::flag(bool flag) { written(flag ? "true" : "false"); }

void JsonWriter::written(std::string_view value) {
  separate();
  out_ += value;
}

}  // namespace accel::report
