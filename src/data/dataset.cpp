// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.hpp"

#include "base/error.hpp"

namespace accel::data {
namespace {

void check_index(int64_t index, int64_t length) {
  require(index >= 0 && index < length, Status::kNotFound, "index ", index, " is not in the dataset; expected 0 to ",
          length - 1);
}

}  // namespace

c10::IValue Dataset::item(int64_t index) const {
  check_index(index, length());
  return read_item(index);
}

c10::IValue Dataset::batch(c10::IntArrayRef indices, const Collation& collation) const {
  const int64_t items = length();
  for (const int64_t index : indices) check_index(index, items);
  return read_batch(indices, collation);
}

std::vector<c10::IValue> Dataset::read_items(c10::IntArrayRef indices) const {
  std::vector<c10::IValue> items;
  items.reserve(indices.size());
  for (const int64_t index : indices) items.push_back(read_item(index));
  return items;
}

c10::IValue Dataset::read_batch(c10::IntArrayRef indices, const Collation& collation) const {
  return collate(collation, read_items(indices), indices);
}

}  // namespace accel::data
