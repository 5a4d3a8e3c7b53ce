#include "kernels/half_values.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "kernels/elementwise.hpp"

namespace accel::kernels {
namespace {

void convert(const at::Tensor& from, const at::Tensor& to) { copy(stream_of(from), stream_of(to), from.numel()); }

at::Tensor converted(const at::Tensor& tensor, at::ScalarType dtype) {
  const at::TensorOptions options = tensor.options().dtype(dtype);
  if (!tensor.is_non_overlapping_and_dense()) return at::empty(tensor.sizes(), options).copy_(tensor);
  const at::Tensor values = at::empty_strided(tensor.sizes(), tensor.strides(), options);
  convert(tensor, values);
  return values;
}

}  // namespace

at::Tensor to_float32(const at::Tensor& tensor) { return converted(tensor, at::kFloat); }

at::Tensor rounded(const at::Tensor& values, at::ScalarType dtype) { return converted(values, dtype); }

void round_into(const at::Tensor& values, const at::Tensor& result) {
  if (values.is_non_overlapping_and_dense() && values.strides() == result.strides())
    convert(values, result);
  else
    result.copy_(values);
}

}  // namespace accel::kernels
