// SPDX-License-Identifier: Apache-2.0
// Reads Chrome traces event by event, without a tree of them all: they may have hundreds of megabytes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json/json.hpp"

namespace accel::track {

// Name and value as they stand in the text.
using TraceMember = std::pair<std::string_view, std::string_view>;

class TraceText {
 public:
  // `text` is that of the file, and must live as long. kCorrupt, which names the file, if it is not a trace.
  TraceText(std::string_view text, std::string file);

  // An object of the top level, {"accel": {...}}; null if it is missing.
  Json member(std::string_view name) const;
  std::string_view member_text(std::string_view name) const;  // empty: missing

  // Each event is checked JSON of an object. Ends when `visit` returns false.
  void for_each_event(const std::function<bool(std::string_view event)>& visit) const;
  // Returns the members of an event, or of another object.
  std::vector<TraceMember> members(std::string_view object) const;

  const std::string& file() const { return file_; }
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  class Cursor;

  std::string_view text_;
  std::string file_;
  std::vector<TraceMember> members_;
  std::string_view events_;
};

// Microseconds as traces have them, "4789015032974.689", in nanoseconds.
int64_t trace_nanoseconds(std::string_view microseconds);
std::string trace_microseconds(int64_t nanoseconds);

}  // namespace accel::track
