// SPDX-License-Identifier: Apache-2.0
// Numbers that repeat: only those of the period are computed, for a division takes longer than a copy.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::tests {

inline at::Tensor repeated(const at::Tensor& period, int64_t numel) {
  return period.repeat({numel / period.numel() + 1}).narrow(0, 0, numel);
}

}  // namespace accel::tests
