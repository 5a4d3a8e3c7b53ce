// SPDX-License-Identifier: Apache-2.0
#include "data/samplers/length_grouped_sampler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace accel::data {
namespace {

constexpr int64_t kMostGroupBatches = 50;

}  // namespace

LengthGroupedSampler::LengthGroupedSampler(std::vector<int64_t> lengths, int64_t batch_size,
                                           std::optional<int64_t> group_batches, int64_t seed)
    : lengths_(std::move(lengths)), seed_(seed) {
  require(!lengths_.empty(), Status::kInvalidArgument, "a sampler over 0 lengths has nothing to group");
  require(batch_size >= 1, Status::kInvalidArgument, "batch_size is ", batch_size, "; expected at least 1");
  require(group_batches.value_or(1) >= 1, Status::kInvalidArgument, "group_batches is ", group_batches.value_or(1),
          "; expected at least 1");
  for (size_t i = 0; i < lengths_.size(); ++i)
    require(lengths_[i] >= 0, Status::kInvalidArgument, "length ", i, " is ", lengths_[i], "; expected at least 0");
  const int64_t quarter = length() / batch_size / 4;
  const int64_t batches = group_batches.value_or(std::clamp<int64_t>(quarter, 1, kMostGroupBatches));
  group_size_ = std::min(batches, length()) * std::min(batch_size, length());
}

at::Tensor LengthGroupedSampler::indices(int64_t epoch) const {
  at::Tensor order = at::randperm(length(), epoch_generator(seed_, epoch), at::kLong);
  auto* const items = order.mutable_data_ptr<int64_t>();
  int64_t longest = 0;  // the place of the group that begins with it
  for (int64_t begin = 0; begin < length(); begin += group_size_) {
    std::stable_sort(items + begin, items + std::min(begin + group_size_, length()),
                     [this](int64_t a, int64_t b) { return lengths_[a] > lengths_[b]; });
    if (lengths_[items[begin]] > lengths_[items[longest]]) longest = begin;
  }
  std::swap(items[0], items[longest]);
  return order;
}

}  // namespace accel::data
