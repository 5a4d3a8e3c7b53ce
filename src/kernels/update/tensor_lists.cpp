// SPDX-License-Identifier: Apache-2.0
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

std::vector<at::Tensor> spread_like(const at::Tensor& numbers, const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> elements;
  elements.reserve(like.size());
  for (size_t i = 0; i < like.size(); ++i)
    elements.push_back(numbers.select(0, static_cast<int64_t>(i)).expand({like[i].numel()}));
  return split_like(at::cat(elements), like);
}

void for_each_shape(const std::vector<at::Tensor>& tensors, const std::function<void(size_t, size_t)>& run) {
  for (size_t begin = 0; begin < tensors.size();) {
    size_t end = begin + 1;
    while (end < tensors.size() && tensors[end].sizes() == tensors[begin].sizes()) ++end;
    run(begin, end);
    begin = end;
  }
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
