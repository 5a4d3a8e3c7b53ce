// SPDX-License-Identifier: Apache-2.0
// Items that are rows of columns.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.hpp"
#include "data/datasets/columns/column.hpp"

namespace accel::data {

// An item is a list with one row of each column; where the columns have names, a map.
class ColumnDataset : public Dataset {
 public:
  // There are as many names as columns, or none.
  explicit ColumnDataset(std::vector<std::unique_ptr<const Column>> columns,
                         const std::vector<std::string>& names = {});
  int64_t length() const override { return columns_[0]->length(); }

 protected:
  c10::IValue read_item(int64_t index) const override;
  c10::IValue read_batch(c10::IntArrayRef indices, const Collation& collation) const override;

 private:
  std::vector<std::unique_ptr<const Column>> columns_;
  bool has_names_;
  std::vector<c10::IValue> names_;  // of each column, made once for all batches; none without names
};

// "tensor 2", or "column 'x'" where there are names.
std::string column_name(const std::vector<std::string>& names, size_t column);

}  // namespace accel::data
