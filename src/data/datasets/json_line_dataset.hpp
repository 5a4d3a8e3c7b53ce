// SPDX-License-Identifier: Apache-2.0
// Files with a JSON document on each line.
#pragma once

#include <optional>
#include <string>

#include "data/datasets/row_dataset.hpp"

namespace accel::data {

// An item is the value of a line. Lists of numbers or of truths, and lists of equally long ones, are tensors of int64,
// float64 (when one of the numbers has a fraction or exponent) or bool. An empty line is malformed.
class JsonLineDataset final : public RowDataset {
 public:
  // Reads the files that find_files() finds.
  JsonLineDataset(const std::string& path, const std::optional<std::string>& suffix, bool skips_malformed);

 protected:
  c10::IValue read_item(int64_t index) const override;
};

}  // namespace accel::data
