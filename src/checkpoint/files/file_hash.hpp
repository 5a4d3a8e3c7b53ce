// SPDX-License-Identifier: Apache-2.0
// Hash of a file of a checkpoint, which several threads can compute together: the content hash of a file of one block;
// of a larger one that of its blocks' hashes, in their order, as little-endian numbers of 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/files/content_hash.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {

inline constexpr size_t kHashBlock = size_t{16} << 20;

// The hash of a file that is written chunk by chunk.
class FileHash {
 public:
  void add(const void* data, size_t size);
  uint64_t value() const;  // of all data up to now

 private:
  std::vector<uint64_t> blocks_;  // that are full
  ContentHash block_;             // of the one that follows
  size_t filled_ = 0;
};

// Hashes a file to which nothing has been written, on the threads of LibTorch; its pages are let go. A block of 0 is
// the whole.
uint64_t hash_of_file(const MappedFile& file, size_t block = kHashBlock);

}  // namespace accel::checkpoint
