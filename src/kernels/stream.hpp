// A tensor as the kernels see it: a flat array of numbers in one of several formats.
#pragma once

#include <cstdint>

namespace accel::kernels {

enum class Format : uint8_t {
  kFloat,
  kDouble,
  kBFloat16,
  kHalf,
  kSignedByte,    // a byte an element and an exponent a block: see byte_block.hpp
  kUnsignedByte,  // the same without sign and with twice the range
};

// Elements that are worked on together. They stay in the first-level cache, and bytes share an exponent over them.
constexpr int64_t kBlock = 1024;

constexpr int64_t num_blocks(int64_t count) { return (count + kBlock - 1) / kBlock; }

struct Stream {
  void* data = nullptr;
  float* scales = nullptr;  // of bytes: a power of two for each block
  Format format = Format::kFloat;
  bool by_chance = false;  // bfloat16 and bytes: rounded up or down by chance instead of to nearest
};

}  // namespace accel::kernels
