// SPDX-License-Identifier: Apache-2.0
#include "track/appended_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "os/sync_folder.hpp"
#include "os/system_error.hpp"
#include "track/run_folder.hpp"

namespace accel::track {

AppendedFile::AppendedFile(std::string path) : path_(std::move(path)) { open_file(); }

void AppendedFile::open_file() {
  make_folder(folder());
  FileDescriptor file(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  struct stat found {};
  if (!file.is_open() || ::fstat(file.number(), &found) != 0) fail_system(Status::kIo, "open", path_);
  file_ = std::move(file);
  written_ = static_cast<size_t>(found.st_size);
  has_durable_name_ = false;
}

bool AppendedFile::renew_if_removed() {
  struct stat found {};
  if (::fstat(file_.number(), &found) == 0 && found.st_nlink > 0) return false;
  open_file();
  return true;
}

void AppendedFile::remove_broken_line() {
  std::array<char, 4096> block{};
  size_t end = written_;
  for (bool is_whole = end == 0; !is_whole;) {
    const size_t begin = end - std::min(end, block.size());
    const ssize_t count = ::pread(file_.number(), block.data(), end - begin, static_cast<off_t>(begin));
    if (count != static_cast<ssize_t>(end - begin)) fail_system(Status::kIo, "read", path_);
    const size_t newline = std::string_view(block.data(), end - begin).find_last_of('\n');
    end = newline == std::string_view::npos ? begin : begin + newline + 1;
    is_whole = newline != std::string_view::npos || end == 0;
  }
  if (end < written_) shorten(end);
}

void AppendedFile::shorten(size_t bytes) {
  if (::ftruncate(file_.number(), static_cast<off_t>(bytes)) != 0) fail_system(Status::kIo, "shorten", path_);
  written_ = bytes;
}

void AppendedFile::flush(bool durable) {
  size_t begin = 0;
  int failed = 0;
  while (begin < buffer_.size() && failed == 0) {
    const ssize_t count = ::write(file_.number(), buffer_.data() + begin, buffer_.size() - begin);
    if (count >= 0)
      begin += static_cast<size_t>(count);
    else if (errno != EINTR)
      failed = errno;
  }
  buffer_.erase(0, begin);
  written_ += begin;
  if (failed == 0 && durable && ::fdatasync(file_.number()) != 0 && errno != EINVAL) failed = errno;
  errno = failed;
  if (failed != 0) fail_system(Status::kIo, "write", path_);
  if (!durable || has_durable_name_) return;
  sync_folder(folder());
  has_durable_name_ = true;
}

}  // namespace accel::track
