// SPDX-License-Identifier: Apache-2.0
#include "json/json_grammar.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "json/json.hpp"

namespace accel {
namespace {

class JsonGrammar {
 public:
  JsonGrammar(std::string_view document, const std::string& source) : document_(document), source_(source) {}

  CheckedJson check() {
    value(0);
    skip_blanks();
    require(at_ == document_.size(), Status::kInvalidArgument, source_, " has text after its JSON document, at byte ",
            at_);
    copy_until(at_);
    return std::move(checked_);
  }

 private:
  [[noreturn]] void refuse(size_t place, const char* reason) const {
    fail(Status::kInvalidArgument, source_, " is not valid JSON at byte ", place, " of ", document_.size(), ": ",
         reason);
  }

  void copy_until(size_t place) {
    checked_.text += document_.substr(copied_, place - copied_);
    copied_ = place;
  }

  void replace(size_t begin, std::string_view by) {
    copy_until(begin);
    checked_.text += by;
    copied_ = at_;
  }

  char next() const { return at_ < document_.size() ? document_[at_] : '\0'; }  // no valid document has a NUL

  void skip_blanks() { at_ = std::min(document_.find_first_not_of(" \t\r\n", at_), document_.size()); }

  // Behind blanks.
  bool take(char byte) {
    skip_blanks();
    if (next() != byte) return false;
    at_++;
    return true;
  }

  void value(int depth) {
    skip_blanks();
    switch (next()) {
      case '{':
        return members(depth);
      case '[':
        return items(depth);
      case '"':
        return string();
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  void word(std::string_view expected) {
    if (document_.substr(at_, expected.size()) != expected) refuse(at_, "expected a value");
    at_ += expected.size();
  }

  void open(int depth) {
    if (depth == kDeepestJson) refuse(at_, "it is nested too deeply");
    at_++;
  }

  void items(int depth) {
    open(depth);
    if (take(']')) return;
    do value(depth + 1);
    while (take(','));
    if (!take(']')) refuse(at_, "expected ',' or ']'");
  }

  void members(int depth) {
    open(depth);
    if (take('}')) return;
    do {
      skip_blanks();
      if (next() != '"') refuse(at_, "expected a key in quotes");
      string();
      if (!take(':')) refuse(at_, "expected ':'");
      value(depth + 1);
    } while (take(','));
    if (!take('}')) refuse(at_, "expected ',' or '}'");
  }

  size_t skip_digits() {
    const size_t begin = at_;
    while (next() >= '0' && next() <= '9') at_++;
    return at_ - begin;
  }

  void number() {
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
    replace(begin, std::to_string(checked_.numbers.size()));
    checked_.numbers.push_back(document_.substr(begin, at_ - begin));
  }

  void string() {
    at_++;
    while (true) {
      const size_t begin = at_;
      while (static_cast<unsigned char>(next()) >= 0x20 && next() != '"' && next() != '\\') at_++;
      const std::string_view plain = document_.substr(begin, at_ - begin);
      if (const size_t bad = first_bad_byte(plain); bad != plain.size()) refuse(begin + bad, "this is not UTF-8");
      if (at_ == document_.size()) refuse(at_, "a string does not end");
      if (next() == '"') break;
      if (next() != '\\') refuse(at_, "a control character in a string is not escaped");
      escape();
    }
    at_++;
  }

  void escape() {
    const size_t begin = at_++;
    if (next() == 'u') {
      character(begin);
    } else {
      constexpr std::string_view kNames = "\"\\/bfnrt";
      if (at_ == document_.size() || kNames.find(next()) == std::string_view::npos)
        refuse(begin, "this is not an escape");
      at_++;
    }
  }

  void character(size_t begin) {
    at_++;
    const unsigned first = code_unit();
    if (first == 0) return replace(begin, std::string_view(&kNul, 1));
    if (first < 0xd800 || first > 0xdfff) return;
    const bool has_second = document_.substr(at_, 2) == "\\u";
    if (has_second) at_ += 2;
    const unsigned second = has_second ? code_unit() : 0;
    if (first > 0xdbff || second < 0xdc00 || second > 0xdfff) refuse(begin, "this is half of a character");
  }

  unsigned code_unit() {
    const std::string digits(document_.substr(at_, 4));
    if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return isxdigit(c); }))
      refuse(at_, "expected four hexadecimal digits");
    at_ += 4;
    return static_cast<unsigned>(std::stoul(digits, nullptr, 16));
  }

  const std::string_view document_;
  const std::string& source_;
  CheckedJson checked_;
  size_t at_ = 0, copied_ = 0;
};

}  // namespace

CheckedJson check_json(std::string_view document, const std::string& source) {
  return JsonGrammar(document, source).check();
}

}  // namespace accel
