// SPDX-License-Identifier: Apache-2.0
// The concatenation of datasets. @accelerate torch.utils.data.ConcatDataset
#pragma once

#include <memory>
#include <vector>

#include "data/dataset.hpp"

namespace accel::data {

class ConcatenatedDataset final : public Dataset {
 public:
  // Their lengths are taken now: one that changes later is an error when an item beyond its end is read.
  explicit ConcatenatedDataset(std::vector<std::shared_ptr<const Dataset>> parts);
  int64_t length() const override { return ends_.back(); }
  int64_t num_skipped() const override;
  bool calls_back() const override;
  void begin_epoch(int64_t epoch) const override;

 protected:
  c10::IValue read_item(int64_t index) const override;
  c10::IValue read_batch(c10::IntArrayRef indices, const Collation& collation) const override;

 private:
  size_t part_of(int64_t index) const;
  int64_t begin_of(size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<int64_t> ends_;
};

}  // namespace accel::data
