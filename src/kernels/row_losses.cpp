// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_losses.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>

#include <utility>

namespace accel::kernels {

RowLosses::RowLosses(const CrossEntropy& problem, const at::Tensor& target, at::Tensor is_left_out, int64_t classes,
                     at::ScalarType dtype)
    : label_smoothing_(problem.label_smoothing),
      smoothing_(problem.label_smoothing / static_cast<double>(classes)),
      is_left_out_(std::move(is_left_out)) {
  if (problem.class_weight.defined()) class_weight_ = problem.class_weight.to(dtype).contiguous();
  const at::TensorOptions numbers = target.options().dtype(at::kDouble);
  row_weight_ = class_weight_.defined() ? class_weight_.index_select(0, target).to(at::kDouble)
                                        : at::ones({target.size(0)}, numbers);
  if (is_left_out_.defined()) row_weight_.masked_fill_(is_left_out_, 0);
  total_weight_ =
      class_weight_.defined() ? class_weight_.sum(at::kDouble) : at::full({}, static_cast<double>(classes), numbers);
}

at::Tensor RowLosses::losses(const at::Tensor& sums, int64_t begin) const {
  const at::Tensor largest = sums.select(1, 0), log_sum = sums.select(1, 1).log();
  const at::Tensor of_target = (largest - sums.select(1, 3)) + log_sum;
  at::Tensor losses = row_weight_.narrow(0, begin, sums.size(0)) * of_target;
  if (label_smoothing_ > 0) {
    losses.mul_(1 - label_smoothing_);
    losses.add_(total_weight_ * (largest + log_sum) - sums.select(1, 2), smoothing_);
  }
  if (is_left_out_.defined()) losses.masked_fill_(is_left_out_.narrow(0, begin, sums.size(0)), 0);
  return losses;
}

at::Tensor RowLosses::factors(const at::Tensor& row_factor) const {
  const at::Tensor of_target = row_weight_ * row_factor * (1 - label_smoothing_);
  const at::Tensor of_all = (row_factor * smoothing_).expand_as(of_target);
  const at::Tensor factors = at::stack({of_target + of_all * total_weight_, of_all, of_target}, 1);
  return is_left_out_.defined() ? factors.masked_fill_(is_left_out_.unsqueeze(1), 0) : factors;
}

}  // namespace accel::kernels
