// SPDX-License-Identifier: Apache-2.0
#include "report/line_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "os/regular_file.hpp"
#include "os/system_error.hpp"

namespace accel::report {
namespace {

constexpr size_t kChunk = 1 << 20;

}  // namespace

LineFile::Progress LineFile::read(const TakeLine& take) {
  const RegularFile file(path_);
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) fail_system(Status::kIo, "examine", path_);
  const bool is_first = offset_ == 0 && inode_ == 0;
  if (!is_first && (status.st_ino != inode_ || status.st_size < offset_)) {
    *this = LineFile(path_);
    return Progress::kReplaced;
  }
  inode_ = status.st_ino;
  const off_t begin = offset_;
  std::string chunk(kChunk, '\0');
  while (true) {
    const ssize_t got = ::pread(file.descriptor(), chunk.data(), chunk.size(), offset_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_system(Status::kIo, "read", path_);
    if (got == 0) break;
    offset_ += got;
    take_chunk(std::string_view(chunk).substr(0, static_cast<size_t>(got)), take);
  }
  return offset_ == begin ? Progress::kNone : Progress::kRead;
}

void LineFile::take_chunk(std::string_view chunk, const TakeLine& take) {
  while (true) {
    const size_t end = chunk.find('\n');
    if (end == std::string_view::npos) break;
    take_line(chunk.substr(0, end), take);
    chunk.remove_prefix(end + 1);
  }
  if (is_too_long_ || begun_.size() + chunk.size() > kLongestLine) {
    is_too_long_ = true;
    begun_.clear();
  } else {
    begun_ += chunk;
  }
}

void LineFile::take_line(std::string_view end_of_line, const TakeLine& take) {
  ++lines_;
  if (is_too_long_ || begun_.size() + end_of_line.size() > kLongestLine) {
    take(nullptr, lines_);
  } else if (begun_.empty()) {
    take(&end_of_line, lines_);
  } else {
    begun_ += end_of_line;
    const std::string_view line = begun_;
    take(&line, lines_);
  }
  begun_.clear();
  is_too_long_ = false;
}

void LineFile::take_rest(const TakeLine& take) {
  if (!begun_.empty() || is_too_long_) take_line({}, take);
}

}  // namespace accel::report
