// SPDX-License-Identifier: Apache-2.0
// A range of another dataset: the usual cut between training and validation.
#pragma once

#include <memory>

#include "data/dataset.hpp"

namespace accel::data {

class SubsetDataset final : public Dataset {
 public:
  SubsetDataset(std::shared_ptr<const Dataset> dataset, int64_t begin, int64_t end);
  int64_t length() const override { return end_ - begin_; }
  int64_t num_skipped() const override { return dataset_->num_skipped(); }
  bool calls_back() const override { return dataset_->calls_back(); }
  void begin_epoch(int64_t epoch) const override { dataset_->begin_epoch(epoch); }

 protected:
  c10::IValue read_item(int64_t index) const override { return dataset_->item(begin_ + index); }
  c10::IValue read_batch(c10::IntArrayRef indices, const Collation& collation) const override;

 private:
  std::shared_ptr<const Dataset> dataset_;
  int64_t begin_;
  int64_t end_;
};

}  // namespace accel::data
