// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_text.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "json/json_grammar.hpp"

namespace accel::track {

// Finds the ends of values by their brackets and quotes; whether what is between is JSON is checked by who uses it.
class TraceText::Cursor {
 public:
  Cursor(std::string_view text, const TraceText& trace) : text_(text), trace_(trace) {}

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      at_++;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    at_++;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) trace_.refuse(text("expected '", wanted, "' at byte ", at_));
  }
  // Without the quotes.
  std::string_view string() {
    expect('"');
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) trace_.refuse("it ends within a string");
    return text_.substr(begin, at_++ - begin);
  }
  std::string_view value() {
    const char first = peek();
    const size_t begin = at_;
    if (first == '"') {
      string();
    } else if (first == '{' || first == '[') {
      skip_brackets();
    } else {
      while (at_ < text_.size() && std::string_view(",]} \n\t\r").find(text_[at_]) == std::string_view::npos) at_++;
      if (at_ == begin) trace_.refuse(text("expected a value at byte ", at_));
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  void skip_brackets() {
    for (size_t depth = 0; at_ < text_.size();) {
      const char next = text_[at_];
      if (next == '"') {
        string();
        continue;
      }
      at_++;
      if (next == '{' || next == '[') depth++;
      if ((next == '}' || next == ']') && --depth == 0) return;
    }
    trace_.refuse("it ends within an object or a list");
  }

  std::string_view text_;
  const TraceText& trace_;
  size_t at_ = 0;
};

TraceText::TraceText(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {
  constexpr std::string_view kGzip("\x1f\x8b");
  if (text_.substr(0, kGzip.size()) == kGzip) refuse("it is compressed; unpack it with gunzip first");
  Cursor cursor(text_, *this);
  if (cursor.peek() == '[') {
    events_ = cursor.value();
  } else {
    members_ = members(text_);
    events_ = member_text("traceEvents");
  }
  if (events_.empty() || events_[0] != '[') refuse("it has no list traceEvents");
}

void TraceText::refuse(const std::string& reason) const {
  fail(Status::kCorrupt, "'", file_, "' is not a Chrome trace: ", reason);
}

std::vector<TraceMember> TraceText::members(std::string_view object) const {
  std::vector<TraceMember> found;
  Cursor cursor(object, *this);
  cursor.expect('{');
  if (cursor.take('}')) return found;
  do {
    const std::string_view name = cursor.string();
    cursor.expect(':');
    found.emplace_back(name, cursor.value());
  } while (cursor.take(','));
  cursor.expect('}');
  return found;
}

std::string_view TraceText::member_text(std::string_view name) const {
  for (const auto& [key, value] : members_)
    if (key == name) return value;
  return {};
}

Json TraceText::member(std::string_view name) const {
  const std::string_view value = member_text(name);
  if (value.empty()) return {};
  try {
    return parse_json(value, file_);
  } catch (const Error& error) {
    refuse(error.message());
  }
}

void TraceText::for_each_event(const std::function<bool(std::string_view event)>& visit) const {
  Cursor cursor(events_, *this);
  cursor.expect('[');
  if (cursor.take(']')) return;
  do {
    if (cursor.peek() != '{') refuse("an event is not an object");
    const std::string_view event = cursor.value();
    try {
      check_json(event, file_);
    } catch (const Error& error) {
      refuse(error.message());
    }
    if (!visit(event)) return;
  } while (cursor.take(','));
  cursor.expect(']');
}

int64_t trace_nanoseconds(std::string_view microseconds) {
  int64_t whole = 0, part = 0, unit = 1000;
  size_t at = microseconds.substr(0, 1) == "-" ? 1 : 0;
  const size_t sign = at;
  bool is_plain = microseconds.size() - at > 0 && microseconds.size() - at <= 22;
  for (; at < microseconds.size() && std::isdigit(static_cast<unsigned char>(microseconds[at])) != 0; at++) {
    if (at - sign > 14) is_plain = false;
    if (is_plain) whole = whole * 10 + (microseconds[at] - '0');
  }
  if (at < microseconds.size() && microseconds[at] == '.') {
    for (at++; at < microseconds.size() && std::isdigit(static_cast<unsigned char>(microseconds[at])) != 0; at++)
      if (unit > 1) part += (microseconds[at] - '0') * (unit /= 10);
  }
  if (is_plain && at == microseconds.size()) return (sign == 1 ? -1 : 1) * (whole * 1000 + part);
  const double value = std::strtod(std::string(microseconds).c_str(), nullptr) * 1000;
  constexpr double kMost = 9e18;
  return static_cast<int64_t>(std::fmin(std::fmax(value, -kMost), kMost));
}

std::string trace_microseconds(int64_t nanoseconds) {
  char text[40];
  const uint64_t size = nanoseconds < 0 ? ~static_cast<uint64_t>(nanoseconds) + 1 : static_cast<uint64_t>(nanoseconds);
  std::snprintf(text, sizeof text, "%s%llu.%03llu", nanoseconds < 0 ? "-" : "",
                static_cast<unsigned long long>(size / 1000), static_cast<unsigned long long>(size % 1000));
  return text;
}

}  // namespace accel::track
