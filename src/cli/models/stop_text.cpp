// SPDX-License-Identifier: Apache-2.0
#include "cli/models/stop_text.hpp"

#include <algorithm>
#include <utility>

namespace accel::program {
namespace {

// The number of letters at the end of the text with which a stop may begin.
size_t length_of_beginning(const std::string& held, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops)
    for (size_t length = std::min(held.size(), stop.size() - 1); length > longest; --length)
      if (held.compare(held.size() - length, length, stop, 0, length) == 0) longest = length;
  return longest;
}

}  // namespace

std::string StopText::add(std::string_view piece) {
  if (has_stopped_) return "";
  held_.append(piece);
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    has_stopped_ = true;
    held_.resize(end);
    return std::exchange(held_, "");
  }
  std::string certain = held_.substr(0, held_.size() - length_of_beginning(held_, stops_));
  held_.erase(0, certain.size());
  return certain;
}

std::string StopText::finish() { return std::exchange(held_, ""); }

}  // namespace accel::program
