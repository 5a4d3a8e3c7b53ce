// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/row_index.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace accel::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string_view without_line_end(std::string_view row) {
  if (!row.empty() && row.back() == '\n') row.remove_suffix(1);
  if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
  return row;
}

}  // namespace

size_t line_end(std::string_view text, size_t begin) {
  const void* const end = std::memchr(text.data() + begin, '\n', text.size() - begin);
  return end == nullptr ? text.size() : static_cast<size_t>(static_cast<const char*>(end) - text.data());
}

RowIndex::RowIndex(const std::vector<std::string>& paths, const RowEnd& row_end, bool headers) {
  files_.reserve(paths.size());
  first_rows_.push_back(0);
  for (const auto& path : paths) {
    files_.emplace_back(path);
    add_file(row_end, headers);
  }
}

void RowIndex::add_file(const RowEnd& row_end, bool has_header) {
  const std::string_view text = files_.back().text();
  size_t begin = text.substr(0, kByteOrderMark.size()) == kByteOrderMark ? kByteOrderMark.size() : 0;
  headers_.emplace_back();
  if (has_header && begin < text.size()) {
    const size_t end = row_end(text, begin);
    headers_.back() = without_line_end(text.substr(begin, end - begin));
    begin = std::min(end + 1, text.size());
  }
  while (begin < text.size()) {
    begins_.push_back(static_cast<int64_t>(begin));
    begin = row_end(text, begin) + 1;
  }
  first_rows_.push_back(static_cast<int64_t>(begins_.size()));
}

size_t RowIndex::file_of(int64_t position) const {
  if (files_.size() == 1) return 0;
  return static_cast<size_t>(std::upper_bound(first_rows_.begin(), first_rows_.end(), position) - first_rows_.begin()) -
         1;
}

std::string_view RowIndex::row(int64_t index) const {
  const int64_t at = position(index);
  const size_t file = file_of(at);
  const std::string_view text = files_[file].text();
  const auto begin = static_cast<size_t>(begins_[at]);
  const size_t end = at + 1 < first_rows_[file + 1] ? static_cast<size_t>(begins_[at + 1]) : text.size();
  return without_line_end(text.substr(begin, end - begin));
}

std::string RowIndex::location(int64_t index) const {
  const int64_t at = position(index);
  const size_t file = file_of(at);
  return text("'", files_[file].path(), "', row ", at - first_rows_[file] + (headers_[file] ? 2 : 1));
}

void RowIndex::skip_malformed(const std::function<void(int64_t index)>& check) {
  std::vector<int64_t> kept;
  const int64_t rows = size();
  for (int64_t index = 0; index < rows; ++index) {
    try {
      check(index);
      kept.push_back(position(index));
    } catch (const Error&) {
      // Left out, and counted by num_skipped().
    }
  }
  kept_ = std::move(kept);
}

}  // namespace accel::data
