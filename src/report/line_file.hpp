// SPDX-License-Identifier: Apache-2.0
// The lines of a file that may still grow, read in chunks: of a file of any size, one line is in memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace accel::report {

class LineFile {
 public:
  enum class Progress { kNone, kRead, kReplaced };
  // `number` of the line, from 1. A line that is longer than kLongestLine is null.
  using TakeLine = std::function<void(const std::string_view* line, int64_t number)>;

  explicit LineFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // The complete lines behind those that were read before. kReplaced: the file is another one now, or shorter than it
  // was; nothing was read, and the next call begins at its start. kNotFound, kIo.
  Progress read(const TakeLine& take);
  // The last line, if it has no end.
  void take_rest(const TakeLine& take);

  static constexpr size_t kLongestLine = 16 << 20;

 private:
  void take_chunk(std::string_view chunk, const TakeLine& take);
  void take_line(std::string_view end_of_line, const TakeLine& take);

  std::string path_;
  std::string begun_;         // the part of a line that has been read
  bool is_too_long_ = false;  // that line, which is not stored
  int64_t lines_ = 0;
  off_t offset_ = 0;
  ino_t inode_ = 0;
};

}  // namespace accel::report
