// SPDX-License-Identifier: Apache-2.0
// Casts between 8-bit floating point and float32, bfloat16 or float16, with scales. The source is compiled once for
// each instruction set, see update/kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/fp8/fp8_format.hpp"
#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// The findings of a cast to 8 bits.
struct Fp8Counts {
  float largest = 0;      // magnitude before the cast; NaN if a number is NaN
  int64_t saturated = 0;  // numbers, infinities among them, that were too large and became the largest one
};

// Elements [first, first + count) of a line. Element first + i has the scale scales[i / run].
struct Fp8CastKernels {
  // largest[i / run] becomes the larger one of what it was and the magnitude of element first + i, NaN if that is NaN.
  void (*largest_magnitudes)(const ElementSpan& from, int64_t first, int64_t count, int64_t run, float* largest);
  // Scales that map magnitudes to the largest number divided by 2^margin, and their reciprocals. With `powers_of_two`
  // the largest power of two that maps the magnitude not beyond. 1 of zeros, infinities and NaN.
  void (*find_scales)(const float* magnitudes, int64_t count, Float8Format format, int64_t margin, bool powers_of_two,
                      float* scales, float* reciprocals);
  // to = from * scale, rounded once to nearest; what is too large becomes the largest number.
  Fp8Counts (*quantize)(const ElementSpan& from, int64_t first, int64_t count, const float* scales, int64_t run,
                        Float8Format format, uint8_t* to);
  // to = from * scale in float32, rounded once.
  void (*dequantize)(const uint8_t* from, Float8Format format, const float* scales, int64_t run, const ElementSpan& to,
                     int64_t first, int64_t count);
};

namespace baseline {
Fp8CastKernels fp8_cast_kernels();
}
namespace avx2 {
Fp8CastKernels fp8_cast_kernels();
}
namespace avx512 {
Fp8CastKernels fp8_cast_kernels();
}

}  // namespace accel::kernels
