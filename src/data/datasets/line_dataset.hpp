// SPDX-License-Identifier: Apache-2.0
// Text files by lines.
#pragma once

#include <optional>
#include <string>

#include "data/datasets/row_dataset.hpp"

namespace accel::data {

// An item is a line as a string. It is UTF-8 without NUL, as every string of the library; others are malformed.
class LineDataset final : public RowDataset {
 public:
  // Reads the files that find_files() finds.
  LineDataset(const std::string& path, const std::optional<std::string>& suffix, bool skips_malformed);

 protected:
  c10::IValue read_item(int64_t index) const override;
};

}  // namespace accel::data
