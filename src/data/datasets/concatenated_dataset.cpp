// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/concatenated_dataset.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace accel::data {

ConcatenatedDataset::ConcatenatedDataset(std::vector<std::shared_ptr<const Dataset>> parts) : parts_(std::move(parts)) {
  require(!parts_.empty(), Status::kInvalidArgument, "0 datasets have no items to concatenate; expected at least one");
  int64_t end = 0;
  for (const auto& part : parts_) ends_.push_back(end += part->length());
}

bool ConcatenatedDataset::calls_back() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->calls_back(); });
}

int64_t ConcatenatedDataset::num_skipped() const {
  int64_t skipped = 0;
  for (const auto& part : parts_) skipped += part->num_skipped();
  return skipped;
}

void ConcatenatedDataset::begin_epoch(int64_t epoch) const {
  for (const auto& part : parts_) part->begin_epoch(epoch);
}

size_t ConcatenatedDataset::part_of(int64_t index) const {
  return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
}

c10::IValue ConcatenatedDataset::read_item(int64_t index) const {
  const size_t part = part_of(index);
  return parts_[part]->item(index - begin_of(part));
}

c10::IValue ConcatenatedDataset::read_batch(c10::IntArrayRef indices, const Collation& collation) const {
  // Rows of one part are read the way that the part reads them; from several they are joined item by item.
  const size_t part = indices.empty() ? 0 : part_of(indices[0]);
  const auto is_there = [&](int64_t index) { return begin_of(part) <= index && index < ends_[part]; };
  if (!std::all_of(indices.begin(), indices.end(), is_there)) return Dataset::read_batch(indices, collation);
  std::vector<int64_t> inside(indices.begin(), indices.end());
  for (int64_t& index : inside) index -= begin_of(part);
  return parts_[part]->batch(inside, collation);
}

}  // namespace accel::data
