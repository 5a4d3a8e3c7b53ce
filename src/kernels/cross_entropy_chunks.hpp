// SPDX-License-Identifier: Apache-2.0
// Fused linear cross entropy: the loss of a linear layer's class scores, which are computed for one chunk of rows at a
// time and never stored as a whole. Gradients are computed from a chunk's scores while they exist. The idea is that of
// Cut Cross-Entropy (Wijmans et al., 2024) and of the Liger kernels (Hsu et al., 2024).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/class_scores.hpp"

namespace accel::kernels {

// Checked by the caller; all on one device.
struct LinearCrossEntropy : CrossEntropy {
  at::Tensor input;        // [rows, features]
  at::Tensor weight;       // [classes of this rank, features], of the input's dtype, which is that of the matmuls
  at::Tensor bias;         // [classes of this rank], of the same dtype, or undefined
  int64_t chunk_size = 0;  // rows; 0: by the number of classes
};

// Undefined where not wanted.
struct LinearGradients {
  at::Tensor input, weight, bias;
  at::Tensor row_sums;  // of kNone, for its backward
};

struct WantedGradients {
  bool input = false, weight = false, bias = false;
  bool any() const { return input || weight || bias; }
};

// The loss: of each row for kNone, otherwise a scalar, whose gradients are computed too.
at::Tensor linear_cross_entropy(const LinearCrossEntropy& problem, WantedGradients wanted, LinearGradients& gradients);

// For kNone: the gradients of sum(loss * loss_gradient). Computes the scores again, without communication.
LinearGradients linear_cross_entropy_backward(const LinearCrossEntropy& problem, at::Tensor row_sums,
                                              const at::Tensor& loss_gradient, WantedGradients wanted);

}  // namespace accel::kernels
