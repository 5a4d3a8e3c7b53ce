// SPDX-License-Identifier: Apache-2.0
// Copies a result to the caller's tensor where that is not contiguous.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace accel::comm::ucx {

inline void copy_result(const at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  to.copy_(from);
}

}  // namespace accel::comm::ucx
