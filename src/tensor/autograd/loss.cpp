// SPDX-License-Identifier: Apache-2.0
#include "tensor/autograd/loss.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>

#include <cmath>

#include "base/error.hpp"
#include "tensor/dtype.hpp"

namespace accel::tensor {
namespace {

// LibTorch would broadcast other shapes, which is a loss of other numbers.
void require_pair(const char* name, const at::Tensor& input, const at::Tensor& target) {
  require(input.is_floating_point(), Status::kTypeMismatch, name, " is ", dtype_name(input.scalar_type()),
          "; expected a floating dtype");
  require(target.is_floating_point(), Status::kTypeMismatch, "target is ", dtype_name(target.scalar_type()),
          "; expected a floating dtype");
  require(input.sizes() == target.sizes(), Status::kShapeMismatch, "target has shape ", target.sizes(), " and ", name,
          " ", input.sizes(), "; expected the same");
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, bool is_sum) {
  require(logits.is_floating_point(), Status::kTypeMismatch, "logits are ", dtype_name(logits.scalar_type()),
          "; expected a floating dtype");
  require(labels.scalar_type() == c10::ScalarType::Long, Status::kTypeMismatch, "labels are ",
          dtype_name(labels.scalar_type()), "; expected int64");
  require(logits.dim() >= 1 && logits.sizes().slice(0, logits.dim() - 1) == labels.sizes(), Status::kShapeMismatch,
          "labels have shape ", labels.sizes(), " and logits ", logits.sizes(),
          "; expected logits of the labels' shape and the classes");
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}), /*weight=*/{},
                                is_sum ? at::Reduction::Sum : at::Reduction::Mean);
}

at::Tensor mse_loss(const at::Tensor& input, const at::Tensor& target) {
  require_pair("input", input, target);
  return at::mse_loss(input, target);
}

at::Tensor l1_loss(const at::Tensor& input, const at::Tensor& target) {
  require_pair("input", input, target);
  return at::l1_loss(input, target);
}

at::Tensor huber_loss(const at::Tensor& input, const at::Tensor& target, double delta) {
  require_pair("input", input, target);
  require(delta > 0 && std::isfinite(delta), Status::kInvalidArgument, "delta is ", delta,
          "; expected a positive number");
  return at::huber_loss(input, target, at::Reduction::Mean, delta);
}

at::Tensor binary_cross_entropy_with_logits(const at::Tensor& logits, const at::Tensor& target) {
  require_pair("logits", logits, target);
  return at::binary_cross_entropy_with_logits(logits, target);
}

}  // namespace accel::tensor
