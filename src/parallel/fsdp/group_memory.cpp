// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/group_memory.hpp"

namespace accel::parallel {

int64_t aligned_shard_bytes(int64_t elements, at::ScalarType dtype) {
  constexpr int64_t kCacheLine = 64;  // bytes
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(dtype));
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace accel::parallel
