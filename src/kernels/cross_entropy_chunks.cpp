// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy_chunks.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/row_losses.hpp"

namespace accel::kernels {
namespace {

// The rows whose target is a class. The others take no part in anything: on the CPU they are not even multiplied. On a
// device the host would wait for their number, so they are rows of zeros there.
struct Rows {
  explicit Rows(const LinearCrossEntropy& problem) : target(problem.target) {
    const at::Tensor without_class = problem.target.eq(problem.ignore_index);
    if (!target.is_cpu() || problem.uses_operators) {
      is_left_out = without_class;
      target = target.masked_fill(without_class, 0);
    } else if (without_class.any().item<bool>()) {
      places = without_class.logical_not().nonzero().squeeze(1);
      target = target.index_select(0, places);
    }
  }
  at::Tensor of(const at::Tensor& whole, int64_t begin, int64_t count) const {
    if (places.defined()) return whole.index_select(0, places.narrow(0, begin, count));
    const at::Tensor rows = whole.narrow(0, begin, count);
    if (!is_left_out.defined()) return rows;
    const at::Tensor mask = is_left_out.narrow(0, begin, count);
    return rows.masked_fill(rows.dim() == 1 ? mask : mask.unsqueeze(1), 0);
  }
  void put(const at::Tensor& part, int64_t begin, const at::Tensor& whole) const {
    if (places.defined())
      whole.index_copy_(0, places.narrow(0, begin, part.size(0)), part.to(whole.scalar_type()));
    else
      whole.narrow(0, begin, part.size(0)).copy_(part);
  }
  int64_t count() const { return target.size(0); }

  at::Tensor places;       // undefined: all
  at::Tensor is_left_out;  // of all rows, or undefined
  at::Tensor target;
};

// Each chunk reads all of the weight and adds to all of its gradient. With fewer rows than these that takes a
// noticeable part of the time of the scores_buffer; with more there is little left to win.
constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kMinRows = 256;

// sum += left * right, where the sum may have a wider dtype; then a part of its rows at a time, to stay in the CPU's
// caches or to bound a device's memory.
void add_matmul(const at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  if (sum.scalar_type() == left.scalar_type()) {
    sum.addmm_(left, right);
    return;
  }
  constexpr int64_t kRowsInCaches = 4096;
  const int64_t row_bytes = std::max<int64_t>(1, sum.size(1) * left.element_size());
  const int64_t rows_of_part = sum.is_cpu() ? kRowsInCaches : std::max(kRowsInCaches, kChunkBytes / row_bytes);
  for (int64_t begin = 0; begin < sum.size(0); begin += rows_of_part) {
    const int64_t count = std::min(rows_of_part, sum.size(0) - begin);
    sum.narrow(0, begin, count).add_(at::mm(left.narrow(0, begin, count), right));
  }
}

int64_t all_classes(const LinearCrossEntropy& problem) {
  return problem.share == nullptr ? problem.weight.size(0) : problem.share->whole;
}

// The ranks that share classes have chunks of the same rows.
int64_t rows_of_chunk(const LinearCrossEntropy& problem) {
  if (problem.chunk_size > 0) return problem.chunk_size;
  const int64_t ranks = problem.share == nullptr ? 1 : problem.share->ranks;
  const int64_t classes = std::max<int64_t>(1, (all_classes(problem) + ranks - 1) / ranks);
  return std::max(kMinRows, kChunkBytes / (classes * problem.input.element_size()));
}

class ChunkLoop {
 public:
  explicit ChunkLoop(const LinearCrossEntropy& problem)
      : problem_(problem),
        rows_(problem),
        losses_(problem, rows_.target, rows_.is_left_out, all_classes(problem), sum_dtype(problem.input)) {}

  // The divisor of the mean.
  at::Tensor count() const { return losses_.row_weight().sum(); }
  const Rows& rows() const { return rows_; }

  // A run fills in those that are defined.
  struct Results {
    at::Tensor losses;
    LinearGradients* gradients = nullptr;  // of sum(loss * row_factor)
  };
  // `row_sums` are those of the rows that have a class: saved if they are empty, otherwise taken. Null: neither.
  void run(const Results& results, const at::Tensor& row_factor, at::Tensor* row_sums = nullptr) const {
    const int64_t chunk = std::min(rows_of_chunk(problem_), rows_.count());
    if (chunk == 0) return;
    LinearGradients* const gradients = results.gradients;
    const at::Tensor buffer = at::empty({chunk, problem_.weight.size(0)}, problem_.input.options());
    const at::Tensor factors = gradients == nullptr ? at::Tensor() : losses_.factors(row_factor);
    const bool takes_sums = row_sums != nullptr && row_sums->defined();
    if (row_sums != nullptr && !takes_sums) *row_sums = at::empty({rows_.count(), 4}, factors_options());
    for (int64_t begin = 0; begin < rows_.count(); begin += chunk) {
      const int64_t count = std::min(chunk, rows_.count() - begin);
      const at::Tensor input = rows_.of(problem_.input, begin, count);
      at::Tensor scores_buffer = buffer.narrow(0, 0, count);
      if (problem_.bias.defined())
        at::addmm_out(scores_buffer, problem_.bias, input, problem_.weight.t());
      else
        at::mm_out(scores_buffer, input, problem_.weight.t());
      const ClassScores scores(problem_, scores_buffer, rows_.target.narrow(0, begin, count), losses_.class_weight());
      const at::Tensor sums = takes_sums ? row_sums->narrow(0, begin, count) : scores.measure();
      if (row_sums != nullptr && !takes_sums) row_sums->narrow(0, begin, count).copy_(sums);
      if (results.losses.defined()) rows_.put(losses_.losses(sums, begin), begin, results.losses);
      if (gradients == nullptr) continue;
      const at::Tensor& slopes = scores.differentiate(sums, factors.narrow(0, begin, count));
      if (gradients->input.defined()) rows_.put(at::mm(slopes, problem_.weight), begin, gradients->input);
      if (gradients->weight.defined()) add_matmul(gradients->weight, slopes.t(), input);
      if (gradients->bias.defined()) gradients->bias.add_(slopes.sum(0, false, gradients->bias.scalar_type()));
    }
  }

 private:
  at::TensorOptions factors_options() const { return problem_.input.options().dtype(at::kDouble); }

  const LinearCrossEntropy& problem_;
  Rows rows_;
  RowLosses losses_;
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
    loop.run({losses}, at::Tensor(), wanted.any() ? &gradients.row_sums : nullptr);
    return losses.to(dtype);
  }
  const at::Tensor divisor = problem.reduction == LossReduction::kMean ? loop.count() : at::ones({}, numbers);
  loop.run({losses, wanted.any() ? &gradients : nullptr}, divisor.reciprocal());
  return (losses.sum() / divisor).to(dtype);
}

LinearGradients linear_cross_entropy_backward(const LinearCrossEntropy& problem, at::Tensor row_sums,
                                              const at::Tensor& loss_gradient, WantedGradients wanted) {
  LinearGradients gradients = make_gradients(problem, wanted);
  if (problem.input.is_meta()) return gradients;
  const ChunkLoop loop(problem);
  loop.run({at::Tensor(), &gradients}, loop.rows().of(loss_gradient, 0, loop.rows().count()).to(at::kDouble),
           &row_sums);
  return gradients;
}

}  // namespace accel::kernels
