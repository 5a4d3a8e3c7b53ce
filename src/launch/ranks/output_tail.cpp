// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/output_tail.hpp"

#include <algorithm>

namespace accel::launch {
namespace {

constexpr size_t kKept = 64 * 1024;

}  // namespace

void OutputTail::add(std::string_view text) {
  text_.append(text);
  // Cut rarely: each cut moves the rest.
  if (text_.size() > 2 * kKept) text_.erase(0, text_.size() - kKept);
}

std::vector<std::string> OutputTail::last_lines(size_t most) const {
  std::vector<std::string> lines;
  size_t end = text_.size();
  if (end > 0 && text_[end - 1] == '\n') --end;
  while (end > 0 && lines.size() < most) {
    const size_t newline = text_.rfind('\n', end - 1);
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    lines.push_back(text_.substr(begin, end - begin));
    end = newline == std::string::npos ? 0 : newline;
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace accel::launch
