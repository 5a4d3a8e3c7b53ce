#include "kernels/cross_entropy_chunks.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "kernels/attention/softmax_rows.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace {

// The rows whose target is a class. The others take no part in anything: they are not even multiplied.
struct Rows {
  explicit Rows(const LinearCrossEntropy& problem) : target(problem.target) {
    const at::Tensor has_class = problem.target.ne(problem.ignore_index);
    if (has_class.all().item<bool>()) return;
    places = has_class.nonzero().squeeze(1);
    target = target.index_select(0, places);
  }
  at::Tensor of(const at::Tensor& whole, int64_t begin, int64_t count) const {
    return places.defined() ? whole.index_select(0, places.narrow(0, begin, count)) : whole.narrow(0, begin, count);
  }
  void put(const at::Tensor& part, int64_t begin, const at::Tensor& whole) const {
    if (places.defined())
      whole.index_copy_(0, places.narrow(0, begin, part.size(0)), part.to(whole.scalar_type()));
    else
      whole.narrow(0, begin, part.size(0)).copy_(part);
  }
  int64_t count() const { return target.size(0); }

  at::Tensor places;  // undefined: all
  at::Tensor target;
};

// Scores of one chunk, [rows, classes].
class Scores {
 public:
  Scores(const LinearCrossEntropy& problem, at::Tensor scores, at::Tensor target, at::Tensor class_weight)
      : scores_(std::move(scores)),
        target_(std::move(target)),
        class_weight_(std::move(class_weight)),
        is_smoothed_(problem.label_smoothing > 0),
        has_kernels_(scores_.is_cpu() && !problem.uses_operators) {}

  // The columns of RowSums.
  at::Tensor measure() const {
    if (!has_kernels_) return measure_by_operators();
    at::Tensor sums = at::empty({scores_.size(0), 4}, at::kDouble);
    auto* const results = static_cast<RowSums*>(sums.mutable_data_ptr());
    for_all_rows([&](const SoftmaxKernels& kernels, const ScoreRows& rows, int64_t first, int64_t last) {
      kernels.measure(rows, first, last, results);
    });
    return sums;
  }

  // In place; `factors` has the columns of RowFactors.
  const at::Tensor& differentiate(const at::Tensor& sums, const at::Tensor& factors) const {
    if (!has_kernels_) return differentiate_by_operators(sums, factors);
    const auto* const own_sums = static_cast<const RowSums*>(sums.const_data_ptr());
    const auto* const own_factors = static_cast<const RowFactors*>(factors.const_data_ptr());
    for_all_rows([&](const SoftmaxKernels& kernels, const ScoreRows& rows, int64_t first, int64_t last) {
      kernels.differentiate(rows, first, last, own_sums, own_factors);
    });
    return scores_;
  }

 private:
  template <typename Work>
  void for_all_rows(const Work& work) const {
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

  // Other devices than the CPU use LibTorch's operators.
  at::Tensor measure_by_operators() const {
    const at::Tensor scores = scores_.to(sum_dtype(scores_));
    const at::Tensor largest = scores.amax(1);
    const at::Tensor sum = (scores - largest.unsqueeze(1)).exp_().sum(1);
    const at::Tensor weighted = !is_smoothed_             ? at::zeros_like(sum)
                                : class_weight_.defined() ? at::mv(scores, class_weight_)
                                                          : scores.sum(1);
    return at::stack({largest, sum, weighted, scores.gather(1, target_.unsqueeze(1)).squeeze(1)}, 1).to(at::kDouble);
  }
  const at::Tensor& differentiate_by_operators(const at::Tensor& sums, const at::Tensor& factors) const {
    const at::ScalarType dtype = sum_dtype(scores_);
    const auto column = [&](const at::Tensor& columns, int64_t index) { return columns.narrow(1, index, 1).to(dtype); };
    at::Tensor gradient = scores_.to(dtype).sub_(column(sums, 0)).exp_();
    gradient.mul_((factors.narrow(1, 0, 1) / sums.narrow(1, 1, 1)).to(dtype));
    if (is_smoothed_) gradient.sub_(class_weight_.defined() ? column(factors, 1) * class_weight_ : column(factors, 1));
    gradient.scatter_add_(1, target_.unsqueeze(1), -column(factors, 2));
    scores_.copy_(gradient);
    return scores_;
  }

  at::Tensor scores_, target_, class_weight_;
  bool is_smoothed_;
  bool has_kernels_;
};

// Each chunk reads all of the weight and adds to all of its gradient. With fewer rows than these that takes a
// noticeable part of the time of the scores_buffer; with more there is little left to win.
constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kMinRows = 256;

int64_t rows_of_chunk(const LinearCrossEntropy& problem) {
  if (problem.chunk_size > 0) return problem.chunk_size;
  const int64_t row = std::max<int64_t>(1, problem.weight.size(0)) * problem.input.element_size();
  return std::max(kMinRows, kChunkBytes / row);
}

// sum += left * right, where the sum may have a wider dtype; then a part of its rows at a time, to stay in the caches.
void add_matmul(const at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  if (sum.scalar_type() == left.scalar_type()) {
    sum.addmm_(left, right);
    return;
  }
  constexpr int64_t kRowsOfPart = 4096;
  for (int64_t begin = 0; begin < sum.size(0); begin += kRowsOfPart) {
    const int64_t count = std::min(kRowsOfPart, sum.size(0) - begin);
    sum.narrow(0, begin, count).add_(at::mm(left.narrow(0, begin, count), right));
  }
}

class ChunkLoop {
 public:
  explicit ChunkLoop(const LinearCrossEntropy& problem) : problem_(problem), rows_(problem) {
    if (problem.class_weight.defined()) class_weight_ = problem.class_weight.to(sum_dtype(problem.input)).contiguous();
    const at::TensorOptions numbers = problem.input.options().dtype(at::kDouble);
    row_weight_ = class_weight_.defined() ? class_weight_.index_select(0, rows_.target).to(at::kDouble)
                                          : at::ones({rows_.count()}, numbers);
    const auto classes = static_cast<double>(problem.weight.size(0));
    total_weight_ = class_weight_.defined() ? class_weight_.sum(at::kDouble) : at::full({}, classes, numbers);
    smoothing_ = problem.label_smoothing / classes;
  }

  // The divisor of the mean.
  at::Tensor count() const { return row_weight_.sum(); }
  const Rows& rows() const { return rows_; }

  // `losses` and the gradients of sum(loss * row_factor) are filled in where they are defined.
  void run(const at::Tensor& losses, const at::Tensor& row_factor, LinearGradients* gradients) const {
    const int64_t chunk = std::min(rows_of_chunk(problem_), rows_.count());
    if (chunk == 0) return;
    const at::Tensor buffer = at::empty({chunk, problem_.weight.size(0)}, problem_.input.options());
    const at::Tensor factors = gradients == nullptr ? at::Tensor() : factors_of(row_factor);
    for (int64_t begin = 0; begin < rows_.count(); begin += chunk) {
      const int64_t count = std::min(chunk, rows_.count() - begin);
      const at::Tensor input = rows_.of(problem_.input, begin, count);
      at::Tensor scores_buffer = buffer.narrow(0, 0, count);
      if (problem_.bias.defined())
        at::addmm_out(scores_buffer, problem_.bias, input, problem_.weight.t());
      else
        at::mm_out(scores_buffer, input, problem_.weight.t());
      const Scores scores(problem_, scores_buffer, rows_.target.narrow(0, begin, count), class_weight_);
      const at::Tensor sums = scores.measure();
      if (losses.defined()) rows_.put(loss_of(sums, begin, count), begin, losses);
      if (gradients == nullptr) continue;
      const at::Tensor& slopes = scores.differentiate(sums, factors.narrow(0, begin, count));
      if (gradients->input.defined()) rows_.put(at::mm(slopes, problem_.weight), begin, gradients->input);
      if (gradients->weight.defined()) add_matmul(gradients->weight, slopes.t(), input);
      if (gradients->bias.defined()) gradients->bias.add_(slopes.sum(0, false, gradients->bias.scalar_type()));
    }
  }

 private:
  bool is_smoothed() const { return problem_.label_smoothing > 0; }

  at::Tensor loss_of(const at::Tensor& sums, int64_t begin, int64_t count) const {
    const at::Tensor largest = sums.select(1, 0), log_sum = sums.select(1, 1).log();
    const at::Tensor of_target = (largest - sums.select(1, 3)) + log_sum;
    at::Tensor loss = row_weight_.narrow(0, begin, count) * of_target;
    if (is_smoothed()) {
      loss.mul_(1 - problem_.label_smoothing);
      loss.add_(total_weight_ * (largest + log_sum) - sums.select(1, 2), smoothing_);
    }
    return loss;
  }

  at::Tensor factors_of(const at::Tensor& row_factor) const {
    const at::Tensor of_target = row_weight_ * row_factor * (1 - problem_.label_smoothing);
    const at::Tensor of_all = (row_factor * smoothing_).expand_as(of_target);
    return at::stack({of_target + of_all * total_weight_, of_all, of_target}, 1);
  }

  const LinearCrossEntropy& problem_;
  Rows rows_;
  at::Tensor class_weight_, row_weight_, total_weight_;
  double smoothing_ = 0;
};

LinearGradients make_gradients(const LinearCrossEntropy& problem, WantedGradients wanted) {
  LinearGradients gradients;
  const at::TensorOptions sums = problem.input.options().dtype(sum_dtype(problem.input));
  if (wanted.input) gradients.input = at::zeros(problem.input.sizes(), problem.input.options());
  if (wanted.weight) gradients.weight = at::zeros(problem.weight.sizes(), sums);
  if (wanted.bias) gradients.bias = at::zeros(problem.bias.sizes(), sums);
  return gradients;
}

}  // namespace

at::ScalarType sum_dtype(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor linear_cross_entropy(const LinearCrossEntropy& problem, WantedGradients wanted, LinearGradients& gradients) {
  const bool is_single = problem.reduction != LossReduction::kNone;
  const at::ScalarType dtype = sum_dtype(problem.input);
  const at::TensorOptions numbers = problem.input.options().dtype(at::kDouble);
  if (is_single && wanted.any()) gradients = make_gradients(problem, wanted);
  if (problem.input.is_meta())
    return at::empty(is_single ? at::IntArrayRef() : problem.target.sizes(), numbers.dtype(dtype));

  const ChunkLoop loop(problem);
  const at::Tensor losses = at::zeros(problem.target.sizes(), numbers);
  if (!is_single) {
    loop.run(losses, at::Tensor(), nullptr);
    return losses.to(dtype);
  }
  const at::Tensor divisor = problem.reduction == LossReduction::kMean ? loop.count() : at::ones({}, numbers);
  loop.run(losses, divisor.reciprocal(), wanted.any() ? &gradients : nullptr);
  return (losses.sum() / divisor).to(dtype);
}

LinearGradients linear_cross_entropy_backward(const LinearCrossEntropy& problem, const at::Tensor& loss_gradient,
                                              WantedGradients wanted) {
  LinearGradients gradients = make_gradients(problem, wanted);
  if (problem.input.is_meta()) return gradients;
  const ChunkLoop loop(problem);
  loop.run(at::Tensor(), loop.rows().of(loss_gradient, 0, loop.rows().count()).to(at::kDouble), &gradients);
  return gradients;
}

}  // namespace accel::kernels
