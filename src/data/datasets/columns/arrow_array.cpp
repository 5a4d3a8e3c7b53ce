// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/columns/arrow_array.hpp"

namespace accel::data {

bool arrow_is_valid(const ArrowArray& array, int64_t index) {
  const auto* const bits = array.n_buffers > 0 ? static_cast<const uint8_t*>(array.buffers[0]) : nullptr;
  const int64_t bit = array.offset + index;
  return bits == nullptr || (bits[bit / 8] >> (bit % 8) & 1) != 0;
}

int64_t arrow_null_count(const ArrowArray& array, int64_t begin, int64_t length) {
  if (array.null_count == 0 || array.n_buffers == 0 || array.buffers[0] == nullptr) return 0;
  int64_t nulls = 0;
  for (int64_t i = begin; i < begin + length; ++i)
    if (!arrow_is_valid(array, i)) ++nulls;
  return nulls;
}

}  // namespace accel::data
