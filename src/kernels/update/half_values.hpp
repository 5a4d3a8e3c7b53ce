// SPDX-License-Identifier: Apache-2.0
// Conversion of bfloat16 and float16 tensors to float32, and back with one rounding.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::kernels {

inline bool is_half(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

// Dense: in the layout of the tensor if that is dense, otherwise contiguous.
at::Tensor to_float32(const at::Tensor& tensor);

at::Tensor rounded(const at::Tensor& values, at::ScalarType dtype);
// `result` has the sizes of `values`, in any layout.
void round_into(const at::Tensor& values, const at::Tensor& result);

}  // namespace accel::kernels
