// SPDX-License-Identifier: Apache-2.0
// Rows of tensors in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/datasets/columns/column_dataset.hpp"

namespace accel::data {

// The tensors' memory is shared.
class TensorDataset final : public ColumnDataset {
 public:
  explicit TensorDataset(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& names = {});
};

// Row i of each tensor is its entries [offsets[i], offsets[i + 1]): rows of different lengths, which are written where
// the batch will lie when a loader pads.
class RaggedDataset final : public ColumnDataset {
 public:
  RaggedDataset(const std::vector<at::Tensor>& values, const at::Tensor& offsets,
                const std::vector<std::string>& names = {});
};

}  // namespace accel::data
