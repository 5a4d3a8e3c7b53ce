// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/subset_dataset.hpp"

#include <vector>

#include "base/error.hpp"

namespace accel::data {

SubsetDataset::SubsetDataset(std::shared_ptr<const Dataset> dataset, int64_t begin, int64_t end)
    : dataset_(std::move(dataset)), begin_(begin), end_(end) {
  require(0 <= begin && begin <= end && end <= dataset_->length(), Status::kInvalidArgument, "items [", begin, ", ",
          end, ") are not part of the dataset; expected a range inside [0, ", dataset_->length(), ")");
}

c10::IValue SubsetDataset::read_batch(c10::IntArrayRef indices, const Collation& collation) const {
  std::vector<int64_t> shifted(indices.begin(), indices.end());
  for (int64_t& index : shifted) index += begin_;
  return dataset_->batch(shifted, collation);
}

}  // namespace accel::data
