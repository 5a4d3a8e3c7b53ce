// Work on every element of many CPU tensors, spread over the threads as if the tensors were one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "kernels/kernels.hpp"

namespace accel::kernels {

// Whether there are kernels for a dtype: float32, float64, bfloat16, float16.
bool has_format(c10::ScalarType dtype);
// A dense tensor, in the order of its memory.
Stream stream_of(const at::Tensor& tensor);

// `formula` on each of the jobs, whose parameters are all of float64, or none is.
void update(Formula formula, const std::vector<UpdateJob>& jobs);

// The norm of each tensor's magnitudes, NaN where one is; squares are not rooted.
std::vector<double> norms(Norm norm, c10::ArrayRef<at::Tensor> tensors);
// In place: every element times `factor`, then cut to [-limit, limit].
void scale(c10::ArrayRef<at::Tensor> tensors, double factor, double limit);
// Numbers of one format in another; none is float64.
void copy(const Stream& from, const Stream& to, int64_t count, uint32_t seed = 0);

}  // namespace accel::kernels
