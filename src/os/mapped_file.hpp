// SPDX-License-Identifier: Apache-2.0
// A memory-mapped file. The mapping is private: writing to it does not change the file.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "os/regular_file.hpp"

namespace accel {

class MappedFile {
 public:
  // The file must not become shorter while it is mapped, because reading beyond its end is a SIGBUS, unless a
  // BusErrorGuard makes an error of it. Writers here never truncate: they replace.
  explicit MappedFile(const std::string& path) : MappedFile(RegularFile(path)) {}
  explicit MappedFile(const RegularFile& file);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {data_, size_}; }

 private:
  std::string path_;
  char* data_ = nullptr;
  size_t size_ = 0;
};

// For what has been read of mapped files: pages that lie in this memory no longer count as the process's, and come from
// the page cache when they are read again. Changes of them are lost. Nothing happens to other memory.
void forget_pages(const void* data, size_t size);

// Whether all of a part of a mapped file is in the page cache, so that it can be read without the disk.
bool is_cached(const void* data, size_t size);

}  // namespace accel
