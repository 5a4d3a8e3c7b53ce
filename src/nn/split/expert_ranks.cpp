// SPDX-License-Identifier: Apache-2.0
#include "nn/split/expert_ranks.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <numeric>

#include "base/error.hpp"
#include "nn/split/marks.hpp"

namespace accel::nn {
namespace {

using ExpertMarks = Marks<WeakTensor, ExpertRanks>;

ExpertMarks& weights_of_experts() {
  static ExpertMarks& marks = *std::make_unique<ExpertMarks>().release();
  return marks;
}

// Null for a weight that is not shared out.
std::shared_ptr<const ExpertRanks> ranks_of(const at::Tensor& weight) {
  const auto ranks = weights_of_experts().find(weight.unsafeGetTensorImpl());
  if (!ranks) return nullptr;
  require(*ranks != nullptr, Status::kInvalidState,
          "the weight is that of some experts of a model which is gone; expected one of a model that exists");
  return *ranks;
}

std::vector<int64_t> numbers_of(const at::Tensor& numbers, const char* name, int64_t dimensions) {
  require(numbers.dim() == dimensions && !numbers.is_floating_point(), Status::kShapeMismatch, name, " has the shape ",
          numbers.sizes(), " and the type ", numbers.scalar_type(), "; expected int64 with ", dimensions,
          dimensions == 1 ? " dimension, the experts" : " dimensions, ranks and experts");
  const at::Tensor on_host = numbers.detach().to(at::kCPU, at::kLong).contiguous();
  const int64_t* const first = on_host.const_data_ptr<int64_t>();
  return {first, first + on_host.numel()};
}

std::vector<int64_t> counts_of(const at::Tensor& rows, const at::Tensor& numbers, const char* name) {
  std::vector<int64_t> counts = numbers_of(numbers, "counts", 1);
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  require(rows.dim() == 2 && (name == nullptr || rows.size(0) == all), Status::kShapeMismatch,
          name == nullptr ? "results" : name, " has the shape ", rows.sizes(), " and counts add up to ", all,
          "; expected rows of one size, as many as there are in the counts");
  return counts;
}

}  // namespace

std::vector<int64_t> DispatchedTokens::counts() const {
  std::vector<int64_t> counts(received.front().size(), 0);
  for (const std::vector<int64_t>& of_rank : received)
    for (size_t expert = 0; expert < counts.size(); expert++) counts[expert] += of_rank[expert];
  return counts;
}

at::Tensor ExpertRanks::run(const at::Tensor& rows, const std::vector<int64_t>& counts, const Compute& compute) const {
  const DispatchedTokens own = dispatch(rows, counts);
  return combine(compute(own.rows, own.counts()), counts, own.received);
}

void mark_expert_ranks(const at::Tensor& weight, const std::shared_ptr<const ExpertRanks>& ranks) {
  weights_of_experts().set(WeakTensor(weight.getIntrusivePtr()), ranks, /*owns=*/false);
}

std::tuple<at::Tensor, at::Tensor> dispatch_tokens(const at::Tensor& rows, const at::Tensor& counts,
                                                   const at::Tensor& weight) {
  const std::vector<int64_t> own_counts = counts_of(rows, counts, "rows");
  const auto ranks = ranks_of(weight);
  if (ranks == nullptr) return {rows, counts.to(at::kCPU, at::kLong).unsqueeze(0)};
  const DispatchedTokens own = ranks->dispatch(rows, own_counts);
  std::vector<int64_t> received;
  for (const std::vector<int64_t>& of_rank : own.received)
    received.insert(received.end(), of_rank.begin(), of_rank.end());
  return {own.rows, at::tensor(received, at::kLong).view({static_cast<int64_t>(own.received.size()), -1})};
}

at::Tensor combine_tokens(const at::Tensor& results, const at::Tensor& counts, const at::Tensor& received,
                          const at::Tensor& weight) {
  const std::vector<int64_t> own_counts = counts_of(results, counts, nullptr);
  const std::vector<int64_t> numbers = numbers_of(received, "received", 2);
  const int64_t rows = std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
  require(results.size(0) == rows, Status::kShapeMismatch, "results has the shape ", results.sizes(),
          " and received adds up to ", rows, "; expected a result for each dispatched row");
  const auto ranks = ranks_of(weight);
  if (ranks == nullptr) return results;
  const auto experts = static_cast<ptrdiff_t>(received.size(1));
  ExpertCounts of_ranks;
  for (auto next = numbers.begin(); next != numbers.end(); next += experts) of_ranks.emplace_back(next, next + experts);
  return ranks->combine(results, own_counts, of_ranks);
}

}  // namespace accel::nn
