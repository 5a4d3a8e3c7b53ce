// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory: a device copies from and to it beside its computation, while the host goes on. LibTorch
// keeps what is freed for the next tensors. Where the system gives none, ordinary memory takes its place, which one
// warning says: it has the same values, and copies wait.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace accel::tensor {

// at::empty() on the host, page-locked where the options ask for it.
at::Tensor empty_on_host(c10::IntArrayRef sizes, const at::TensorOptions& options);
// at::empty_like() on the host, the same.
at::Tensor empty_like_on_host(const at::Tensor& tensor, const at::TensorOptions& options);

// The tensor, or a page-locked copy of one that is dense, on the host and not page-locked.
at::Tensor page_locked(const at::Tensor& tensor);

}  // namespace accel::tensor
