// SPDX-License-Identifier: Apache-2.0
// Writer of zip archives of stored entries. It streams: each byte is written once, and none is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/files/atomic_file.hpp"

namespace accel::checkpoint {

class ZipWriter {
 public:
  // The data of each entry begins at a multiple of `alignment` from the beginning of the file, which must be empty.
  ZipWriter(OutputFile& output, uint64_t alignment) : output_(output), alignment_(alignment) {}

  // Names are different, and at most 64 KiB.
  void add(const std::string& name, std::string_view data);
  // `read` hands over the data, which has so many bytes in all, in parts of any size.
  using Take = std::function<void(const char* data, size_t size)>;
  void add(const std::string& name, uint64_t size, const std::function<void(const Take&)>& read);
  // Writes the directory; no entries afterwards.
  void finish();

 private:
  struct Entry {
    std::string name;
    uint64_t begin;
    uint64_t size;
    uint32_t checksum;
  };

  void write(std::string_view bytes);

  OutputFile& output_;
  uint64_t alignment_;
  uint64_t position_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace accel::checkpoint
