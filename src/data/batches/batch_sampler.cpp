// SPDX-License-Identifier: Apache-2.0
#include "data/batches/batch_sampler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "base/error.hpp"

namespace accel::data {
namespace {

void check_batch_size(int64_t batch_size) {
  require(batch_size >= 1, Status::kInvalidArgument, "batch_size is ", batch_size, "; expected at least 1");
}

}  // namespace

int64_t BatchSampler::count(int64_t epoch) const {
  const EpochBatches made = batches(epoch);
  return batch_size() ? made.indices.numel() : static_cast<int64_t>(made.offsets.size()) - 1;
}

OrderedBatchSampler::OrderedBatchSampler(std::shared_ptr<const Sampler> sampler, int64_t batch_size, bool drop_last)
    : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
  check_batch_size(batch_size);
}

EpochBatches OrderedBatchSampler::batches(int64_t epoch) const {
  at::Tensor indices = sampler_->indices(epoch);
  require(indices.defined() && indices.scalar_type() == at::kLong && indices.dim() == 1 && indices.device().is_cpu(),
          Status::kTypeMismatch, "a sampler gave an order that is not an int64 tensor of one dimension on the CPU");
  return {indices.contiguous(), {}};
}

CallbackBatchSampler::CallbackBatchSampler(Batches batches, std::optional<int64_t> batch_size, bool drop_last)
    : batches_(std::move(batches)), batch_size_(batch_size), drop_last_(drop_last) {
  if (batch_size) check_batch_size(*batch_size);
}

EpochBatches CallbackBatchSampler::batches(int64_t epoch) const {
  const auto lists = batches_(epoch);
  std::vector<int64_t> indices, offsets{0};
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto rows = static_cast<int64_t>(lists[i].size());
    require(rows > 0, Status::kInvalidArgument, "batch ", i,
            " of the batch sampler is empty; expected at least one index");
    require(!batch_size_ || rows == *batch_size_ || (i + 1 == lists.size() && rows < *batch_size_),
            Status::kInvalidArgument, "batch ", i, " of the batch sampler has ", rows, " indices; expected ",
            batch_size_.value_or(0), ", its batch_size, of all but the last");
    indices.insert(indices.end(), lists[i].begin(), lists[i].end());
    offsets.push_back(static_cast<int64_t>(indices.size()));
  }
  if (batch_size_) offsets.clear();
  return {at::tensor(indices, at::kLong), std::move(offsets)};
}

}  // namespace accel::data
