// SPDX-License-Identifier: Apache-2.0
// Content hash: XXH3 with 64 bits, as `xxhsum -H3` prints it, of data in chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/xxh3.hpp"

namespace accel::checkpoint {

class ContentHash {
 public:
  ContentHash();
  void add(const void* data, size_t size);
  uint64_t value() const;  // of all data up to now

 private:
  std::unique_ptr<kernels::Xxh3State, void (*)(kernels::Xxh3State*)> state_;
};

uint64_t hash_of(const void* data, size_t size);

}  // namespace accel::checkpoint
