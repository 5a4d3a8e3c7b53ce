// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::tensor {

// Mean cross entropy of class scores [..., classes] and int64 labels [...], or its sum; label -100 is left out.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, bool is_sum = false);

// Means over all elements, of two tensors of the same shape.
at::Tensor mse_loss(const at::Tensor& input, const at::Tensor& target);
at::Tensor l1_loss(const at::Tensor& input, const at::Tensor& target);
at::Tensor huber_loss(const at::Tensor& input, const at::Tensor& target, double delta);
at::Tensor binary_cross_entropy_with_logits(const at::Tensor& logits, const at::Tensor& target);

}  // namespace accel::tensor
