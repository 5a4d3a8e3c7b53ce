// SPDX-License-Identifier: Apache-2.0
// Multi-tensor elementwise operations on the CPU: every element of many tensors, parallelised as if they were one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "kernels/update/kernels.hpp"

namespace accel::kernels {

// Whether the kernels support a dtype: float32, float64, bfloat16, float16.
bool has_format(c10::ScalarType dtype);
// The tensor has to be dense; its elements are in the order of memory.
ElementSpan span_of(const at::Tensor& tensor);

// Runs an update kernel for each parameter. Either all parameters are float64 or none is.
void update(UpdateKernel kernel, const std::vector<UpdateArguments>& arguments);

// The norm of each tensor, NaN if an element is. kSquares is the sum of squares, without the root.
std::vector<double> norms(Norm norm, c10::ArrayRef<at::Tensor> tensors);
// In place: every element times `factor`, clamped to [-limit, limit].
void scale(c10::ArrayRef<at::Tensor> tensors, double factor, double limit);
// Converts between formats; neither may be float64.
void copy(const ElementSpan& from, const ElementSpan& to, int64_t count, uint32_t seed = 0);

}  // namespace accel::kernels
