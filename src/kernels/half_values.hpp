// Numbers of bfloat16 and float16 tensors in float32, and back with one rounding.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::kernels {

inline bool is_half(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

// Without gaps, and row-major where the tensor is neither that nor dense in another order.
at::Tensor to_float32(const at::Tensor& tensor);

at::Tensor rounded(const at::Tensor& values, at::ScalarType dtype);
// Of the sizes of `values`, in any layout.
void round_into(const at::Tensor& values, const at::Tensor& result);

}  // namespace accel::kernels
