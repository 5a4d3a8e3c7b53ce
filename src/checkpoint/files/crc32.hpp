// SPDX-License-Identifier: Apache-2.0
// CRC-32, as ZIP archives have it, of data in chunks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace accel::checkpoint {

class Crc32 {
 public:
  void add(const void* data, size_t size);
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 0;
};

uint32_t crc32_of(const void* data, size_t size);

}  // namespace accel::checkpoint
