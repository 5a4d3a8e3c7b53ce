// SPDX-License-Identifier: Apache-2.0
// Formats of quantized weights: matrices whose elements are codes of 4 or 8 bits, and groups of neighbouring columns
// that share a scale.
#pragma once

#include <cstdint>

namespace accel::kernels {

enum class WeightCode : uint8_t {
  kInt8,  // -127..127; with offsets -128..127
  kInt4,  // 0..15, less 8 without offsets
  kNf4,   // quantiles of the normal distribution (Dettmers et al., "QLoRA", 2023, https://arxiv.org/abs/2305.14314)
  kFp4,   // a sign, 2 bits of exponent and 1 of mantissa
  kFloat8E4M3,
  kFloat8E5M2,
};

struct WeightFormat {
  WeightCode code = WeightCode::kInt8;
  int64_t group = 0;         // neighbouring columns of a row that share one scale; 0: the whole row
  bool has_offsets = false;  // value = scale * code + offset, one offset a group; of kInt8 and kInt4
};

// A matrix [rows, columns] of values scale * code (+ offset). The pointers are the caller's.
struct QuantizedWeight {
  WeightFormat format;
  int64_t rows = 0, columns = 0;
  const uint8_t* codes = nullptr;  // code_bytes()
  const float* scales = nullptr;   // [rows, groups_of_row()]
  const float* offsets = nullptr;  // likewise, or null without offsets
};

// 4 or 8. Two codes of 4 bits are in a byte, the earlier one in its high half; a row begins a byte.
int64_t code_bits(WeightCode code);

int64_t row_bytes(const WeightFormat& format, int64_t columns);
// Bytes of the codes of a matrix.
int64_t code_bytes(const WeightFormat& format, int64_t rows, int64_t columns);

// The last group of a row may be shorter than the others.
int64_t groups_of_row(const WeightFormat& format, int64_t columns);
// Columns of a group that is not the last one of a row.
int64_t group_columns(const WeightFormat& format, int64_t columns);

// Throws kInvalidArgument if the group is negative, or if the code has no offsets.
void check_format(const WeightFormat& format);

}  // namespace accel::kernels
