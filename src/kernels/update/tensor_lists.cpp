#include "kernels/update/tensor_lists.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>

namespace accel::kernels {

std::vector<at::Tensor> cast(const std::vector<at::Tensor>& tensors, at::ScalarType dtype) {
  std::vector<at::Tensor> values;
  values.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) values.push_back(at::empty_like(tensor, dtype));
  at::_foreach_copy_(values, tensors);
  return values;
}

at::Tensor flat(const at::Tensor& tensor) { return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset()); }

std::vector<at::Tensor> split_like(const at::Tensor& elements, const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> parts;
  parts.reserve(like.size());
  int64_t begin = elements.storage_offset();
  for (const at::Tensor& tensor : like) {
    parts.push_back(elements.as_strided(tensor.sizes(), tensor.strides(), begin));
    begin += tensor.numel();
  }
  return parts;
}

void round_stochastically(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  constexpr int64_t kCut = 1 << 16;  // what bfloat16 lacks of float32's last bits
  std::vector<at::Tensor> elements;
  for (const at::Tensor& tensor : from) elements.push_back(flat(tensor));
  const at::Tensor values = elements.size() == 1 ? elements[0] : at::cat(elements);
  const at::Tensor bits = values.view(at::kInt);
  const at::Tensor up = at::randint(kCut, bits.sizes(), bits.options()).add_(bits).bitwise_and_(-kCut);
  // Infinity stays as it is, NaN would not.
  at::_foreach_copy_(to, split_like(at::where(values.eq(values), up.view(at::kFloat), values), to));
}

}  // namespace accel::kernels
