// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/columns/column_dataset.hpp"

#include <utility>

#include "base/error.hpp"

namespace accel::data {

std::string column_name(const std::vector<std::string>& names, size_t column) {
  return names.empty() ? text("tensor ", column) : text("column '", names[column], "'");
}

ColumnDataset::ColumnDataset(std::vector<std::unique_ptr<const Column>> columns, const std::vector<std::string>& names)
    : columns_(std::move(columns)), has_names_(!names.empty()), names_(names.begin(), names.end()) {
  require(!columns_.empty(), Status::kInvalidArgument,
          "a dataset of 0 tensors has no rows; expected at least one tensor");
  for (size_t i = 1; i < columns_.size(); ++i)
    require(columns_[i]->length() == columns_[0]->length(), Status::kShapeMismatch, column_name(names, i),
            " of the dataset has ", columns_[i]->length(), " rows; expected ", columns_[0]->length(), " as ",
            column_name(names, 0));
  names_.resize(columns_.size());
}

c10::IValue ColumnDataset::read_item(int64_t index) const {
  ItemBuilder item(has_names_);
  for (size_t i = 0; i < columns_.size(); ++i) item.add(names_[i], {columns_[i]->item(index), {}});
  return item.take();
}

c10::IValue ColumnDataset::read_batch(c10::IntArrayRef indices, const Collation& collation) const {
  if (collation.kind == Collation::Kind::kCallback || indices.empty()) return Dataset::read_batch(indices, collation);
  ItemBuilder batch(has_names_);
  for (size_t i = 0; i < columns_.size(); ++i) batch.add(names_[i], columns_[i]->batch(indices, collation));
  return batch.take();
}

}  // namespace accel::data
