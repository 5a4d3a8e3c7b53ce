// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/callback_dataset.hpp"

#include "base/error.hpp"

namespace accel::data {

int64_t CallbackDataset::length() const {
  const int64_t length = functions_.length();
  require(length >= 0, Status::kInvalidArgument, "the dataset's length is ", length, "; expected at least 0");
  return length;
}

std::vector<c10::IValue> CallbackDataset::read_items(c10::IntArrayRef indices) const {
  if (!functions_.get_items) return Dataset::read_items(indices);
  std::vector<c10::IValue> items = functions_.get_items(indices);
  require(items.size() == indices.size(), Status::kShapeMismatch, "the dataset gave ", items.size(), " items for ",
          indices.size(), " indices that begin with ", indices.empty() ? 0 : indices[0], "; expected one for each");
  return items;
}

}  // namespace accel::data
