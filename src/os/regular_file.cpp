// SPDX-License-Identifier: Apache-2.0
#include "os/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "os/system_error.hpp"

namespace accel {

// Non-blocking, so that opening a pipe with that name does not block.
RegularFile::RegularFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!descriptor_.is_open())
    fail_system(errno == ENOENT || errno == ENOTDIR ? Status::kNotFound : Status::kIo, "open", path);
  struct stat status {};
  if (::fstat(descriptor_.number(), &status) != 0) fail_system(Status::kIo, "examine", path);
  require(S_ISREG(status.st_mode), Status::kIo, "'", path, "' is not a regular file");
  size_ = static_cast<size_t>(status.st_size);
}

std::string RegularFile::read() const {
  std::string bytes(size_, '\0');
  bytes.resize(read_at(0, bytes.data(), size_));
  return bytes;
}

size_t RegularFile::read_at(size_t offset, char* bytes, size_t size) const {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(descriptor_.number(), bytes + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_system(Status::kIo, "read", path_);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace accel
