// SPDX-License-Identifier: Apache-2.0
// XXH3 with 128 bits of one block of memory. Its source is compiled once for each instruction set, as that of xxh3.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/instruction_set.hpp"

namespace accel::kernels {

struct Digest128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Digest128& other) const { return low == other.low && high == other.high; }
  bool operator!=(const Digest128& other) const { return !(*this == other); }
};

using Digest128Function = Digest128(const void* data, size_t size);

namespace baseline {
Digest128Function digest128;
}
namespace avx2 {
Digest128Function digest128;
}
namespace avx512 {
Digest128Function digest128;
}

inline Digest128 digest128(const void* data, size_t size) {
  static Digest128Function* const fastest = ACCEL_FASTEST(digest128);
  return fastest(data, size);
}

}  // namespace accel::kernels
