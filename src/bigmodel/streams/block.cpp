// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/streams/block.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "tensor/set_data.hpp"

namespace accel::bigmodel {
namespace {

at::Tensor contiguous_on_cpu(const at::Tensor& source) {
  const at::NoGradGuard no_grad;
  return source.detach().to(at::kCPU).contiguous();
}

}  // namespace

OffloadedTensor::OffloadedTensor(std::string name, at::Tensor tensor, const at::Tensor& source, at::ScalarType dtype,
                                 c10::Device home)
    : name_(std::move(name)),
      tensor_(std::move(tensor)),
      source_(contiguous_on_cpu(source)),
      absent_(at::empty_strided(source_.sizes(), source_.strides(), source_.options().dtype(dtype).device(at::kMeta))),
      dtype_(dtype),
      home_(home) {
  tensor::set_data(tensor_, absent_);
}

int64_t OffloadedTensor::bytes() const { return source_.numel() * static_cast<int64_t>(c10::elementSize(dtype_)); }

at::Tensor OffloadedTensor::values() const { return source_.to(dtype_); }

void OffloadedTensor::show(size_t block, at::Tensor data) {
  if (is_restored_) return;
  tensor::set_data(tensor_, data);
  shown_.emplace_back(block, std::move(data));
}

void OffloadedTensor::hide(size_t block) {
  if (is_restored_) return;
  shown_.erase(
      std::remove_if(shown_.begin(), shown_.end(), [block](const auto& shown) { return shown.first == block; }),
      shown_.end());
  tensor::set_data(tensor_, shown_.empty() ? absent_ : shown_.back().second);
}

void OffloadedTensor::restore() {
  if (is_restored_) return;
  const at::NoGradGuard no_grad;
  tensor::set_data(tensor_, source_.to(home_, dtype_));
  shown_.clear();
  is_restored_ = true;
}

bool can_be_used_in_place(const Block& block, c10::Device device) {
  return device.is_cpu() && std::all_of(block.tensors.begin(), block.tensors.end(), [](const auto& tensor) {
           return tensor->source().scalar_type() == tensor->dtype();
         });
}

}  // namespace accel::bigmodel
