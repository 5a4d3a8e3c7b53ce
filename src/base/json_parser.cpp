#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text_check.hpp"

namespace accel {
namespace {

// RFC 8259 and nothing more.
class JsonParser {
 public:
  JsonParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Json document() {
    Json result = value(0);
    skip_blanks();
    require(at_ == text_.size(), Status::kInvalidArgument, source_, " has text after its JSON document, at byte ", at_);
    return result;
  }

 private:
  [[noreturn]] void refuse(size_t place, const char* reason) const {
    fail(Status::kInvalidArgument, source_, " is not valid JSON at byte ", place, " of ", text_.size(), ": ", reason);
  }

  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }  // a NUL stands nowhere in a valid document

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  // Behind blanks.
  bool take(char byte) {
    skip_blanks();
    if (next() != byte) return false;
    at_++;
    return true;
  }

  Json value(int depth) {
    skip_blanks();
    switch (next()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return Json(string());
      case 't':
        return word("true", Json(true));
      case 'f':
        return word("false", Json(false));
      case 'n':
        return word("null", Json());
      default:
        return number();
    }
  }

  Json word(std::string_view expected, Json value) {
    if (text_.substr(at_, expected.size()) != expected) refuse(at_, "expected a value");
    at_ += expected.size();
    return value;
  }

  void open(int depth) {
    if (depth == kDeepestJson) refuse(at_, "it is nested too deeply");
    at_++;
  }

  Json array(int depth) {
    Json::Items items;
    open(depth);
    if (take(']')) return Json(std::move(items));
    do items.push_back(value(depth + 1));
    while (take(','));
    if (!take(']')) refuse(at_, "expected ',' or ']'");
    return Json(std::move(items));
  }

  Json object(int depth) {
    Json::Members members;
    open(depth);
    if (take('}')) return Json(std::move(members));
    do {
      skip_blanks();
      if (next() != '"') refuse(at_, "expected a key in quotes");
      std::string key = string();
      if (!take(':')) refuse(at_, "expected ':'");
      members.emplace_back(std::move(key), value(depth + 1));
    } while (take(','));
    if (!take('}')) refuse(at_, "expected ',' or '}'");
    return Json(std::move(members));
  }

  size_t skip_digits() {
    const size_t begin = at_;
    while (next() >= '0' && next() <= '9') at_++;
    return at_ - begin;
  }

  Json number() {
    const size_t begin = at_;
    if (next() == '-') at_++;
    const bool leading_zero = next() == '0';
    const size_t digits = skip_digits();
    if (digits == 0) refuse(begin, "expected a value");
    if (leading_zero && digits > 1) refuse(begin, "a number has a leading zero");
    if (next() == '.') {
      at_++;
      if (skip_digits() == 0) refuse(at_, "expected a digit");
    }
    if (next() == 'e' || next() == 'E') {
      at_++;
      if (next() == '+' || next() == '-') at_++;
      if (skip_digits() == 0) refuse(at_, "expected a digit");
    }
    return Json::number_of(std::string(text_.substr(begin, at_ - begin)));
  }

  std::string string() {
    std::string result;
    at_++;
    while (true) {
      const size_t begin = at_;
      while (static_cast<unsigned char>(next()) >= 0x20 && next() != '"' && next() != '\\') at_++;
      const std::string_view plain = text_.substr(begin, at_ - begin);
      if (const size_t bad = first_bad_byte(plain); bad != plain.size()) refuse(begin + bad, "this is no UTF-8");
      result += plain;
      if (at_ == text_.size()) refuse(at_, "a string does not end");
      if (next() == '"') break;
      if (next() != '\\') refuse(at_, "a control character in a string is not escaped");
      at_++;
      escape(result);
    }
    at_++;
    return result;
  }

  void escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (next() == 'u') {
      at_++;
      append_utf8(code_point(), out);
      return;
    }
    const size_t known = at_ < text_.size() ? kNames.find(next()) : std::string_view::npos;
    if (known == std::string_view::npos) refuse(at_ - 1, "this is no escape");
    out += kMeanings[known];
    at_++;
  }

  // Behind "\u".
  uint32_t code_point() {
    const size_t begin = at_ - 2;
    const uint32_t first = code_unit();
    if (first < 0xd800 || first > 0xdfff) return first;
    const bool has_second = text_.substr(at_, 2) == "\\u";
    if (has_second) at_ += 2;
    const uint32_t second = has_second ? code_unit() : 0;
    if (first > 0xdbff || second < 0xdc00 || second > 0xdfff) refuse(begin, "this is half of a character");
    return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
  }

  uint32_t code_unit() {
    const std::string_view digits = text_.substr(at_, 4);
    uint32_t code = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || result.ec != std::errc() || result.ptr != digits.data() + 4)
      refuse(at_, "expected four hexadecimal digits");
    at_ += 4;
    return code;
  }

  static void append_utf8(uint32_t code, std::string& out) {
    const auto rest = [&](unsigned shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | code >> 6);
      rest(0);
    } else if (code < 0x10000) {
      out += static_cast<char>(0xe0 | code >> 12);
      rest(6);
      rest(0);
    } else {
      out += static_cast<char>(0xf0 | code >> 18);
      rest(12);
      rest(6);
      rest(0);
    }
  }

  const std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

}  // namespace

Json parse_json(std::string_view document, const std::string& source) {
  return JsonParser(document, source).document();
}

}  // namespace accel
