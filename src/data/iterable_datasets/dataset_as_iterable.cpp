// SPDX-License-Identifier: Apache-2.0
#include "data/iterable_datasets/dataset_as_iterable.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <utility>

#include "data/sampler.hpp"

namespace accel::data {
namespace {

class SteppingIterator final : public DatasetIterator {
 public:
  SteppingIterator(std::shared_ptr<const Dataset> dataset, at::Tensor order, int64_t length, int64_t first,
                   int64_t step)
      : dataset_(std::move(dataset)), order_(std::move(order)), length_(length), position_(first), step_(step) {}

  std::optional<c10::IValue> next() override {
    if (position_ >= length_) return std::nullopt;
    const int64_t index = order_.defined() ? order_.const_data_ptr<int64_t>()[position_] : position_;
    c10::IValue item = dataset_->item(index);
    position_ += step_;
    return item;
  }

  int64_t skip(int64_t count) override {
    const int64_t left = position_ >= length_ ? 0 : (length_ - 1 - position_) / step_ + 1;
    const int64_t skipped = std::min(std::max<int64_t>(count, 0), left);
    position_ += skipped * step_;
    return skipped;
  }

 private:
  std::shared_ptr<const Dataset> dataset_;
  at::Tensor order_;  // undefined: that of the numbers
  int64_t length_;
  int64_t position_;
  int64_t step_;
};

}  // namespace

DatasetAsIterable::DatasetAsIterable(std::shared_ptr<const Dataset> dataset, std::optional<int64_t> seed)
    : dataset_(std::move(dataset)), seed_(seed) {}

int64_t DatasetAsIterable::num_shards() const { return std::max<int64_t>(dataset_->length(), 1); }

std::unique_ptr<DatasetIterator> DatasetAsIterable::read(int64_t epoch, int64_t shard, int64_t num_readers) const {
  dataset_->begin_epoch(epoch);
  const int64_t length = dataset_->length();
  at::Tensor order;
  if (seed_ && length > 0) order = SeedableRandomSampler(length, *seed_).indices(epoch);
  return std::make_unique<SteppingIterator>(dataset_, order, length, shard, num_readers);
}

}  // namespace accel::data
