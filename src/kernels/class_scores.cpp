// SPDX-License-Identifier: Apache-2.0
#include "kernels/class_scores.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "kernels/attention/softmax_rows.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kElsewhere = -1;

at::Tensor own_target(const at::Tensor& target, const ClassShare* share) {
  if (share == nullptr) return target;
  const at::Tensor own = target - share->begin;
  return own.masked_fill_(own.lt(0).logical_or_(own.ge(share->size)), kElsewhere);
}

at::Tensor own_weight(const at::Tensor& class_weight, const ClassShare* share) {
  return share == nullptr || !class_weight.defined() ? class_weight : class_weight.narrow(0, share->begin, share->size);
}

}  // namespace

at::ScalarType sum_dtype(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

ClassScores::ClassScores(const CrossEntropy& problem, at::Tensor scores, const at::Tensor& target,
                         const at::Tensor& class_weight)
    : scores_(std::move(scores)),
      target_(own_target(target, problem.share.get())),
      class_weight_(own_weight(class_weight, problem.share.get())),
      share_(problem.share),
      is_smoothed_(problem.label_smoothing > 0),
      has_kernels_(scores_.is_cpu() && !problem.uses_operators) {}

at::Tensor ClassScores::measure() const {
  const at::Tensor own = has_kernels_ ? measure_by_kernels() : measure_by_operators();
  return share_ == nullptr || own.size(0) == 0 ? own : joined(own);
}

// Each rank computes the same from what it gets, and so has the same bits.
at::Tensor ClassScores::joined(const at::Tensor& own) const {
  // The dtype of the sums holds a score, and a sum as exactly as the loss.
  const at::Tensor sent = (is_smoothed_ ? own : at::stack({own.select(1, 0), own.select(1, 1), own.select(1, 3)}, 1))
                              .to(sum_dtype(scores_));
  const at::Tensor all = share_->gather(sent).to(at::kDouble);
  const at::Tensor largest = all.select(2, 0), whole_largest = largest.amax(0);
  const at::Tensor sum = (largest - whole_largest).exp_().mul_(all.select(2, 1)).sum(0);
  const at::Tensor weighted = is_smoothed_ ? all.select(2, 2).sum(0) : at::zeros_like(sum);
  return at::stack({whole_largest, sum, weighted, all.select(2, is_smoothed_ ? 3 : 2).sum(0)}, 1);
}

const at::Tensor& ClassScores::differentiate(const at::Tensor& sums, const at::Tensor& factors) const {
  if (!has_kernels_) return differentiate_by_operators(sums, factors);
  const auto* const own_sums = static_cast<const RowSums*>(sums.const_data_ptr());
  const auto* const own_factors = static_cast<const RowFactors*>(factors.const_data_ptr());
  for_all_rows([&](const SoftmaxKernels& kernels, const ScoreRows& rows, int64_t first, int64_t last) {
    kernels.differentiate(rows, first, last, own_sums, own_factors);
  });
  return scores_;
}

template <typename Work>
void ClassScores::for_all_rows(const Work& work) const {
  ScoreRows rows;
  rows.scores = scores_.mutable_data_ptr();
  rows.classes = scores_.size(1);
  rows.targets = target_.const_data_ptr<int64_t>();
  rows.class_weight = class_weight_.defined() ? class_weight_.const_data_ptr() : nullptr;
  rows.format = span_of(scores_).format;
  rows.sums_scores = is_smoothed_;
  const SoftmaxKernels kernels = ACCEL_FASTEST(softmax_kernels)();
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, rows.classes));
  parallel_for(scores_.size(0), grain, [&](int64_t first, int64_t last) { work(kernels, rows, first, last); });
}

at::Tensor ClassScores::measure_by_kernels() const {
  at::Tensor sums = at::empty({scores_.size(0), 4}, at::kDouble);
  auto* const results = static_cast<RowSums*>(sums.mutable_data_ptr());
  for_all_rows([&](const SoftmaxKernels& kernels, const ScoreRows& rows, int64_t first, int64_t last) {
    kernels.measure(rows, first, last, results);
  });
  return sums;
}

at::Tensor ClassScores::measure_by_operators() const {
  const at::Tensor scores = scores_.to(sum_dtype(scores_));
  const at::Tensor largest = scores.amax(1);
  const at::Tensor sum = (scores - largest.unsqueeze(1)).exp_().sum(1);
  const at::Tensor weighted = !is_smoothed_             ? at::zeros_like(sum)
                              : class_weight_.defined() ? at::mv(scores, class_weight_)
                                                        : scores.sum(1);
  const at::Tensor of_target = scores.gather(1, target_.clamp_min(0).unsqueeze(1)).squeeze(1);
  return at::stack({largest, sum, weighted, of_target.masked_fill(target_.eq(kElsewhere), 0)}, 1).to(at::kDouble);
}

const at::Tensor& ClassScores::differentiate_by_operators(const at::Tensor& sums, const at::Tensor& factors) const {
  const at::ScalarType dtype = sum_dtype(scores_);
  const auto column = [&](const at::Tensor& columns, int64_t index) { return columns.narrow(1, index, 1).to(dtype); };
  at::Tensor gradient = scores_.to(dtype).sub_(column(sums, 0)).exp_();
  gradient.mul_((factors.narrow(1, 0, 1) / sums.narrow(1, 1, 1)).to(dtype));
  if (is_smoothed_) gradient.sub_(class_weight_.defined() ? column(factors, 1) * class_weight_ : column(factors, 1));
  const at::Tensor at_target = column(factors, 2).masked_fill(target_.eq(kElsewhere).unsqueeze(1), 0);
  gradient.scatter_add_(1, target_.clamp_min(0).unsqueeze(1), -at_target);
  scores_.copy_(gradient);
  return scores_;
}

}  // namespace accel::kernels
