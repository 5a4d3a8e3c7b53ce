// SPDX-License-Identifier: Apache-2.0
// Group memory: the parameters of a group side by side in one block of memory, each at a cache line.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace accel::parallel {

// The bytes that a parameter, or its shard, takes in the memory of its group.
int64_t aligned_shard_bytes(int64_t elements, at::ScalarType dtype);

class GroupMemoryLayout {
 public:
  // Returns the offset.
  int64_t add(int64_t elements, at::ScalarType dtype) {
    const int64_t offset = bytes_;
    bytes_ += aligned_shard_bytes(elements, dtype);
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

inline at::Tensor part_of(const at::Tensor& memory, int64_t offset, int64_t elements, at::ScalarType dtype) {
  return memory.narrow(0, offset, elements * static_cast<int64_t>(c10::elementSize(dtype))).view(dtype);
}

}  // namespace accel::parallel
