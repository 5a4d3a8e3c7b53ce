// SPDX-License-Identifier: Apache-2.0
// Files of comma-separated values.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/generated/settings/dataset/csv.hpp"
#include "data/datasets/row_dataset.hpp"

namespace accel::data {

// Nothing stands for text.
using CsvType = std::optional<c10::ScalarType>;

struct CsvOptions : CsvSettings {
  std::vector<std::pair<std::string, CsvType>> types = {};  // of columns that are not to be inferred
};

// An item is a map from each column's name to its cell. A column whose type is not given has the narrowest of bool,
// int64, float64 and text that holds its cells in the first 1000 rows; what does not fit later is malformed, as is a
// row with another number of cells. int64, float64 and bool cells are numbers, those of other dtypes tensors without
// dimension.
class CsvDataset final : public RowDataset {
 public:
  // Reads the files that find_files() finds. All files have the same header.
  CsvDataset(const std::string& path, const std::optional<std::string>& suffix, const CsvOptions& options);

 protected:
  c10::IValue read_item(int64_t index) const override;
  c10::IValue read_batch(c10::IntArrayRef indices, const Collation& collation) const override;

 private:
  using Cells = std::vector<std::string>;

  char delimiter() const { return static_cast<char>(options_.delimiter); }
  void read_header();
  void choose_types();
  CsvType inferred_type(size_t column, const std::vector<Cells>& rows) const;
  void split(int64_t index, Cells& cells) const;
  c10::IValue convert(int64_t index, size_t column, std::string& cell) const;

  CsvOptions options_;
  std::vector<std::string> names_;
  std::vector<CsvType> types_;
};

}  // namespace accel::data
