// SPDX-License-Identifier: Apache-2.0
// Ids as tensors on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace accel::capi {

inline at::Tensor tensor_of_ids(const std::vector<int64_t>& ids, c10::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kLong);
  std::copy(ids.begin(), ids.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

inline at::Tensor tensor_of_ids(const std::vector<int64_t>& ids) {
  return tensor_of_ids(ids, {static_cast<int64_t>(ids.size())});
}

}  // namespace accel::capi
