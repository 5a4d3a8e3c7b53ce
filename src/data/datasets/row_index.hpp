// SPDX-License-Identifier: Apache-2.0
// Where the rows of text files are: found in one pass when a dataset is opened, so that a row is parsed only when it is
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/file_bytes.hpp"

namespace accel::data {

// The place of the newline that ends the row at `begin`; the size of the text where there is none.
using RowEnd = std::function<size_t(std::string_view text, size_t begin)>;
size_t line_end(std::string_view text, size_t begin);

class RowIndex {
 public:
  // The rows of all files, one file behind the other. A byte order mark is not part of them. With headers the first row
  // of each file is none.
  RowIndex(const std::vector<std::string>& paths, const RowEnd& row_end, bool headers);

  int64_t size() const { return kept_ ? static_cast<int64_t>(kept_->size()) : static_cast<int64_t>(begins_.size()); }
  // Without its newline, and without a carriage return before that.
  std::string_view row(int64_t index) const;
  // "'data/a.csv', row 12", counted from 1 in each file, headers included.
  std::string location(int64_t index) const;

  size_t num_files() const { return files_.size(); }
  const std::string& path(size_t file) const { return files_[file].path(); }
  // Nothing for an empty file.
  std::optional<std::string_view> header(size_t file) const { return headers_[file]; }

  // Leaves out the rows at which the check throws an Error.
  void skip_malformed(const std::function<void(int64_t index)>& check);
  int64_t num_skipped() const { return static_cast<int64_t>(begins_.size()) - size(); }

 private:
  void add_file(const RowEnd& row_end, bool has_header);
  int64_t position(int64_t index) const { return kept_ ? (*kept_)[index] : index; }
  size_t file_of(int64_t position) const;

  std::vector<FileBytes> files_;
  std::vector<std::optional<std::string_view>> headers_;
  std::vector<int64_t> begins_;      // of each row in its file
  std::vector<int64_t> first_rows_;  // of each file, and the end
  std::optional<std::vector<int64_t>> kept_;
};

}  // namespace accel::data
