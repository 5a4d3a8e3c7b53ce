// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor/first_rank_values.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <utility>

#include "base/error.hpp"
#include "comm/collectives.hpp"

namespace accel::parallel {

FirstRankValues::FirstRankValues(nn::NamedTensors tensors, RankGroup group)
    : tensors_(std::move(tensors)), group_(std::move(group)) {
  std::vector<int64_t> own;
  for (const auto& [name, tensor] : tensors_) own.push_back(tensor.is_meta() ? 0 : 1);
  const at::Tensor of_ranks = comm::gather_rows(*group_, at::tensor(own, at::kLong)).contiguous();
  const int64_t* const are_there = of_ranks.const_data_ptr<int64_t>();
  for (size_t i = 0; i < own.size(); i++) {
    are_there_.push_back(are_there[i] != 0);
    for (size_t rank = 1; rank < static_cast<size_t>(group_->size()); rank++)
      require(are_there_[i] || are_there[rank * own.size() + i] == 0, Status::kCollectiveMismatch, "'",
              tensors_[i].first, "' has no memory on rank 0 of those that share layers, and has on rank ", rank,
              "; expected values on the first rank, or on none");
  }
}

at::Tensor FirstRankValues::take(size_t index) const {
  at::Tensor tensor = tensors_[index].second.detach();
  if (!are_there_[index]) return tensor;
  if (tensor.is_meta()) tensor = at::empty(tensor.sizes(), tensor.options().device(group_->device()));
  // Where only an accelerator has collectives, the tensor goes there alone.
  const at::Tensor sent = (tensor.is_cpu() ? tensor.to(group_->device()) : tensor).contiguous();
  group_->broadcast(sent, /*from=*/0);
  if (!sent.is_same(tensor) && group_->rank() != 0) tensor.copy_(sent);
  return tensor;
}

}  // namespace accel::parallel
