// SPDX-License-Identifier: Apache-2.0
// The hash XXH3 with 64 bits. Its source is compiled once for each instruction set, see kernels.hpp: with the widest
// registers it is three times as fast as with those that every processor has, and the values are the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace accel::kernels {

struct Xxh3State;

struct Xxh3 {
  Xxh3State* (*create)();  // null without memory
  void (*release)(Xxh3State* state);
  void (*add)(Xxh3State& state, const void* data, size_t size);
  uint64_t (*value)(const Xxh3State& state);
};

const Xxh3& xxh3();  // the fastest

namespace baseline {
Xxh3 xxh3_kernels();
}
namespace avx2 {
Xxh3 xxh3_kernels();
}
namespace avx512 {
Xxh3 xxh3_kernels();
}

}  // namespace accel::kernels
