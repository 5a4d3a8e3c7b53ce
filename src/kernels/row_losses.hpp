// SPDX-License-Identifier: Apache-2.0
// Row losses: what the cross entropy of rows and its slopes are, by the sums over their class scores.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/class_scores.hpp"

namespace accel::kernels {

class RowLosses {
 public:
  // The rows have these targets, each of which is one of `classes`. Those where `is_left_out` is true, if it is
  // defined, have the loss 0 and no slopes. `dtype` is that of the sums.
  RowLosses(const CrossEntropy& problem, const at::Tensor& target, at::Tensor is_left_out, int64_t classes,
            at::ScalarType dtype);

  // A factor for each class, or undefined.
  const at::Tensor& class_weight() const { return class_weight_; }
  // The share of each row in a mean, float64.
  const at::Tensor& row_weight() const { return row_weight_; }

  // The losses of the rows from `begin` on, float64; `sums` has the columns of RowSums.
  at::Tensor losses(const at::Tensor& sums, int64_t begin) const;
  // The columns of RowFactors of all rows, for the gradient of sum(loss * row_factor).
  at::Tensor factors(const at::Tensor& row_factor) const;

 private:
  double label_smoothing_, smoothing_;
  at::Tensor class_weight_, row_weight_, total_weight_, is_left_out_;
};

}  // namespace accel::kernels
