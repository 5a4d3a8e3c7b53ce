// SPDX-License-Identifier: Apache-2.0
// Quantization and dequantization of rows. The source is compiled once for each instruction set, see
// update/kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/quantized/weight_format.hpp"
#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// How numbers become codes of a code book: the code of a number is codes[i] with i the number of borders below it.
struct CodeBorders {
  float borders[15];
  uint8_t codes[16];
};

struct CodeKernels {
  // Quantizes a row; `exact` has room for its numbers. Returns the first group that is not finite, or -1. `borders` is
  // of nf4 and fp4 only.
  int64_t (*quantize_row)(const void* row, Format row_format, int64_t columns, const WeightFormat& format,
                          const CodeBorders& borders, float* exact, uint8_t* codes, float* scales, float* offsets);
  // Writes a row of numbers. `exact` has room for them and 1 more.
  void (*dequantize_row)(const QuantizedWeight& weight, int64_t row, float* exact, void* values, Format values_format);
};

namespace baseline {
CodeKernels code_kernels();
}
namespace avx2 {
CodeKernels code_kernels();
}
namespace avx512 {
CodeKernels code_kernels();
}

}  // namespace accel::kernels
