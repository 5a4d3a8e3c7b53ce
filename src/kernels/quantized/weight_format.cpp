// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantized/weight_format.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::kernels {

int64_t code_bits(WeightCode code) {
  const bool is_half_byte = code == WeightCode::kInt4 || code == WeightCode::kNf4 || code == WeightCode::kFp4;
  return is_half_byte ? 4 : 8;
}

int64_t row_bytes(const WeightFormat& format, int64_t columns) { return (columns * code_bits(format.code) + 7) / 8; }

int64_t code_bytes(const WeightFormat& format, int64_t rows, int64_t columns) {
  return rows * row_bytes(format, columns);
}

int64_t groups_of_row(const WeightFormat& format, int64_t columns) {
  const int64_t group = group_columns(format, columns);
  return columns == 0 ? 0 : (columns + group - 1) / group;
}

int64_t group_columns(const WeightFormat& format, int64_t columns) {
  return format.group == 0 ? std::max<int64_t>(1, columns) : format.group;
}

void check_format(const WeightFormat& format) {
  require(format.group >= 0, Status::kInvalidArgument, "a quantized weight has groups of ", format.group,
          " columns; expected a positive number, or 0 for whole rows");
  require(!format.has_offsets || format.code == WeightCode::kInt8 || format.code == WeightCode::kInt4,
          Status::kInvalidArgument,
          "offsets were asked for with a float code of weights; only int8 and int4 have them");
}

}  // namespace accel::kernels
