// SPDX-License-Identifier: Apache-2.0
// Rows of text files.
#pragma once

#include <utility>

#include "data/dataset.hpp"
#include "data/datasets/row_index.hpp"

namespace accel::data {

// A row is checked when it is read; with `skip_malformed` when the files are opened, and what does not pass is left out
// and counted.
class RowDataset : public Dataset {
 public:
  int64_t length() const final { return rows_.size(); }
  int64_t num_skipped() const final { return rows_.num_skipped(); }

 protected:
  explicit RowDataset(RowIndex rows) : rows_(std::move(rows)) {}
  const RowIndex& rows() const { return rows_; }
  // To be called when the derived class can read.
  void skip_malformed() {
    rows_.skip_malformed([this](int64_t index) { read_item(index); });
  }

 private:
  RowIndex rows_;
};

}  // namespace accel::data
