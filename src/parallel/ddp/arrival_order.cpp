// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/arrival_order.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <numeric>

namespace accel::parallel {
namespace {

BucketOrder order_of_rank_0(const BucketOrder& own, size_t num_parameters, comm::Communicator& ranks) {
  std::vector<int64_t> bucket_ends(num_parameters, 0), numbers;
  for (const std::vector<size_t>& bucket : own) {
    numbers.insert(numbers.end(), bucket.begin(), bucket.end());
    bucket_ends[numbers.size() - 1] = 1;
  }
  numbers.insert(numbers.end(), bucket_ends.begin(), bucket_ends.end());
  at::Tensor sent = at::tensor(numbers, at::kLong).to(ranks.device());
  ranks.broadcast(sent, /*from=*/0);
  const at::Tensor received = sent.cpu();
  const auto* const values = received.const_data_ptr<int64_t>();
  BucketOrder order(1);
  for (size_t i = 0; i < num_parameters; i++) {
    order.back().push_back(static_cast<size_t>(values[i]));
    if (values[num_parameters + i] != 0) order.emplace_back();
  }
  order.pop_back();
  return order;
}

}  // namespace

void ArrivalOrder::note_any(size_t num_parameters) {
  if (!arrived_.empty()) return;
  arrived_.resize(num_parameters);
  std::iota(arrived_.begin(), arrived_.end(), size_t{0});
}

std::optional<BucketOrder> ArrivalOrder::take(const std::vector<at::Tensor>& parameters,
                                              const std::vector<int64_t>& limits, const GradientClasses& classes,
                                              comm::Communicator& ranks) {
  if (arrived_.empty()) return std::nullopt;
  BucketOrder order = order_of_rank_0(fill_buckets(parameters, arrived_, limits, classes), parameters.size(), ranks);
  is_taken_ = true;
  arrived_.clear();
  return order;
}

}  // namespace accel::parallel
