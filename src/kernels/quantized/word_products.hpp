// SPDX-License-Identifier: Apache-2.0
// Products of quantized weights in integers: inputs are rounded to words of 16 bits, a scale for each block of columns,
// and multiplied with codes that are read as words; sums of a block are exact. A processor adds twice as many of these
// products as of float32. The source is compiled once for each instruction set, see update/kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/quantized/weight_format.hpp"
#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// Numbers of a row of rounded inputs; the distances of rows.
struct WordLayout {
  int64_t words = 0, scales = 0, sums = 0;
};

// Rows of inputs as a set rounds them: words in the order in which it reads codes, scales of blocks, and the sums of
// the groups of the weight.
struct WordRows {
  int64_t count = 0;
  WordLayout layout;
  const int16_t* words = nullptr;
  const float* scales = nullptr;
  const float* sums = nullptr;
};

struct WordProduct {
  QuantizedWeight weight;
  WordRows inputs;
  Format format = Format::kFloat;  // of the bias and the outputs
  const void* bias = nullptr;      // [rows of the weight], or null
  void* outputs = nullptr;         // [count, rows of the weight]
};

struct WordKernels {
  // Whether the set multiplies weights of a format in integers.
  bool (*is_available)(const WeightFormat& format, int64_t columns);
  WordLayout (*layout)(const WeightFormat& format, int64_t columns);
  // Rounds a row to multiples of the largest magnitude of a block / `largest`; with 127 the blocks are the groups of
  // the weight. `exact` has room for layout().words numbers.
  void (*round_row)(const WeightFormat& format, int64_t columns, const void* row, Format row_format, int64_t largest,
                    float* exact, int16_t* words, float* scales, float* sums);
  // Rows [begin, end) of the weight for inputs [first, last). `scratch` has room for kWordScratchRows rows of words.
  void (*multiply)(const WordProduct& product, int64_t first, int64_t last, int64_t begin, int64_t end,
                   int16_t* scratch);
};

constexpr int64_t kWordScratchRows = 4;

namespace baseline {
WordKernels word_kernels();
}
namespace avx2 {
WordKernels word_kernels();
}
namespace avx512 {
WordKernels word_kernels();
}

}  // namespace accel::kernels
