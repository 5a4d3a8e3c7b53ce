// SPDX-License-Identifier: Apache-2.0
// A regular file that is open for reading.
#pragma once

#include <cstddef>
#include <string>

#include "os/file_descriptor.hpp"

namespace accel {

class RegularFile {
 public:
  // kNotFound if there is no such file, kIo if it is not a regular file.
  explicit RegularFile(const std::string& path);

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_.number(); }
  size_t size() const { return size_; }  // when it was opened
  // Reads from the beginning; returns fewer bytes if the file was truncated.
  std::string read() const;
  // Reads a part; returns fewer bytes only where the file ends.
  size_t read_at(size_t offset, char* bytes, size_t size) const;

 private:
  std::string path_;
  FileDescriptor descriptor_;
  size_t size_ = 0;
};

}  // namespace accel
