// SPDX-License-Identifier: Apache-2.0
// Element span: a tensor as the kernels see it, a flat array of numbers in one of several formats.
#pragma once

#include <cstdint>

namespace accel::kernels {

enum class Format : uint8_t {
  kFloat,
  kDouble,
  kBFloat16,
  kHalf,
  kSigned8Bit,    // block-wise 8-bit quantization: see block_quantization.hpp
  kUnsigned8Bit,  // the same without sign and with twice the range
};

// Elements that a kernel processes together. They stay in the L1 cache, and 8-bit numbers share a scale over them.
constexpr int64_t kBlock = 1024;

constexpr int64_t num_blocks(int64_t count) { return (count + kBlock - 1) / kBlock; }

struct ElementSpan {
  void* data = nullptr;
  float* scales = nullptr;  // of the 8-bit formats: a power of two for each block
  Format format = Format::kFloat;
  bool stochastic_rounding = false;  // of bfloat16 and the 8-bit formats, instead of rounding to nearest
};

}  // namespace accel::kernels
