// SPDX-License-Identifier: Apache-2.0
// Root mean square norm of rows. The source is compiled once for each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// result = input / sqrt(mean(input^2) + epsilon) * weight in each row, in float32.
struct RmsNormRows {
  int64_t size;   // of a row
  Format format;  // of all three: kFloat, kBFloat16 or kHalf
  const void* input;
  const void* weight;
  void* result;
  float epsilon;
  bool adds_one;      // to the weight
  bool rounds_first;  // to the format, before the weight; the product is rounded again
};

// Rows [begin, end).
namespace baseline {
void normalize_rows(const RmsNormRows& rows, int64_t begin, int64_t end);
}
namespace avx2 {
void normalize_rows(const RmsNormRows& rows, int64_t begin, int64_t end);
}
namespace avx512 {
void normalize_rows(const RmsNormRows& rows, int64_t begin, int64_t end);
}

}  // namespace accel::kernels
