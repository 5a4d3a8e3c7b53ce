// Checksum: CRC-32, as zlib's, of data in pieces. Large pieces are computed by LibTorch's threads in parallel.
#pragma once

#include <cstddef>
#include <cstdint>

namespace accel::checkpoint {

class Checksum {
 public:
  void add(const void* data, size_t size);
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 0;
};

uint32_t checksum_of(const void* data, size_t size);

}  // namespace accel::checkpoint
