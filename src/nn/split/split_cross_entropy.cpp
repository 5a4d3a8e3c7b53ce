// SPDX-License-Identifier: Apache-2.0
#include "nn/split/split_cross_entropy.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/row_losses.hpp"
#include "nn/second_derivative.hpp"
#include "tensor/autograd/autograd_node.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

using kernels::ClassScores;
using kernels::LossReduction;
using kernels::RowLosses;
using tensor::dtype_name;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// [rows, classes]
at::Tensor as_rows(const at::Tensor& scores) {
  const at::Tensor last = scores.dim() > 2 ? scores.movedim(1, -1) : scores;
  const int64_t classes = last.size(-1);
  return last.reshape({last.numel() / classes, classes}).contiguous();
}

at::Tensor as_scores(const at::Tensor& rows, at::IntArrayRef sizes) {
  if (sizes.size() < 3) return rows.view(sizes);
  std::vector<int64_t> last = sizes.vec();
  last.push_back(last[1]);
  last.erase(last.begin() + 1);
  return rows.view(last).movedim(-1, 1).contiguous();
}

// A cross entropy of rows, whose targets may be left out.
struct Rows {
  explicit Rows(kernels::CrossEntropy checked) : problem(std::move(checked)) {
    is_left_out = problem.target.eq(problem.ignore_index);
    problem.target = problem.target.masked_fill(is_left_out, 0);
  }

  RowLosses losses(const at::Tensor& scores) const {
    return {problem, problem.target, is_left_out, problem.share->whole, kernels::sum_dtype(scores)};
  }
  ClassScores scores(const at::Tensor& of_rows, const RowLosses& losses) const {
    return {problem, of_rows, problem.target, losses.class_weight()};
  }

  kernels::CrossEntropy problem;
  at::Tensor is_left_out;
};

class SplitCrossEntropyBackward final : public Node {
 public:
  using Node::Node;

  std::string name() const override { return "SplitCrossEntropyBackward"; }

  variable_list apply(variable_list&& arriving) override {
    if (!arriving[0].defined()) return variable_list(1);
    at::Tensor gradient;
    {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      const at::Tensor scores = saved_scores.unpack();
      const at::Tensor own = as_rows(scores).to(scores.scalar_type(), false, /*copy=*/true);
      const RowLosses losses = rows->losses(own);
      at::Tensor factor = arriving[0].to(at::kDouble).reshape({-1});
      if (rows->problem.reduction == LossReduction::kMean) factor = factor / losses.row_weight().sum();
      rows->scores(own, losses).differentiate(sums, losses.factors(factor));
      gradient = as_scores(own, scores.sizes());
    }
    variable_list leaving = {gradient};
    refuse_second_derivative(leaving, "the cross entropy of split logits has no second derivative", next_edges());
    return leaving;
  }

  void release_variables() override { saved_scores.reset_data(); }

  SavedVariable saved_scores;
  std::optional<Rows> rows;
  at::Tensor sums;
};

void check_arguments(const at::Tensor& scores, const at::Tensor& target, const kernels::CrossEntropy& problem) {
  const int64_t whole = problem.share->whole;
  require(target.scalar_type() == at::kLong, Status::kUnsupported, "target is ", dtype_name(target.scalar_type()),
          ", and each rank has some classes of the scores; expected int64 classes");
  std::vector<int64_t> sizes = scores.sizes().vec();
  sizes.erase(sizes.begin() + (scores.dim() == 1 ? 0 : 1));
  require(target.sizes() == at::IntArrayRef(sizes), Status::kShapeMismatch, "target has shape ", target.sizes(),
          " and scores ", scores.sizes(), "; expected a class for each row");
  const at::Tensor& weight = problem.class_weight;
  require(!weight.defined() || (weight.dim() == 1 && weight.size(0) == whole), Status::kShapeMismatch,
          "weight has shape ", weight.defined() ? weight.sizes() : at::IntArrayRef(), "; expected one of each of all ",
          whole, " classes");
  require(problem.label_smoothing >= 0 && problem.label_smoothing <= 1, Status::kInvalidArgument, "label_smoothing is ",
          problem.label_smoothing, "; expected 0 to 1");
  const at::Tensor is_wrong = target.lt(0).logical_or_(target.ge(whole)).logical_and_(target.ne(problem.ignore_index));
  if (!is_wrong.any().item<bool>()) return;
  const int64_t wrong = target.masked_select(is_wrong).select(0, 0).item<int64_t>();
  fail(Status::kInvalidArgument, "a target is ", wrong, "; expected a class below ", whole, ", or ",
       problem.ignore_index, " to leave the row out");
}

}  // namespace

at::Tensor split_cross_entropy(const at::Tensor& scores, const at::Tensor& target,
                               const std::optional<at::Tensor>& class_weight, int64_t reduction, int64_t ignore_index,
                               double label_smoothing, const SplitClassesPtr& classes) {
  const bool differentiable = at::GradMode::is_enabled() && scores.requires_grad();
  at::Tensor loss, sums;
  std::optional<Rows> rows;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    kernels::CrossEntropy problem;
    problem.class_weight = class_weight.value_or(at::Tensor());
    problem.reduction = reduction == at::Reduction::None   ? LossReduction::kNone
                        : reduction == at::Reduction::Mean ? LossReduction::kMean
                                                           : LossReduction::kSum;
    problem.ignore_index = ignore_index;
    problem.label_smoothing = label_smoothing;
    problem.share = classes->share;
    check_arguments(scores, target, problem);
    problem.target = target.reshape({-1}).contiguous();
    rows.emplace(std::move(problem));
    const at::Tensor own = as_rows(scores);
    const RowLosses losses = rows->losses(own);
    sums = rows->scores(own, losses).measure();
    const at::Tensor of_rows = losses.losses(sums, 0);
    const LossReduction kind = rows->problem.reduction;
    loss = kind == LossReduction::kNone  ? of_rows.view(target.sizes())
           : kind == LossReduction::kSum ? of_rows.sum()
                                         : of_rows.sum() / losses.row_weight().sum();
    loss = loss.to(scores.scalar_type());
  }
  if (!differentiable) return loss;
  const auto node = tensor::make_autograd_node<SplitCrossEntropyBackward>(torch::autograd::collect_next_edges(scores));
  node->saved_scores = SavedVariable(scores, false);
  node->rows = std::move(rows);
  node->sums = std::move(sums);
  torch::autograd::set_history(loss, node);
  return loss;
}

}  // namespace accel::nn
