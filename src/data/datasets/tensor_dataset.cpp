// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/tensor_dataset.hpp"

#include <utility>

namespace accel::data {
namespace {

using Columns = std::vector<std::unique_ptr<const Column>>;

Columns dense_columns(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& names) {
  Columns columns;
  for (size_t i = 0; i < tensors.size(); ++i) columns.push_back(dense_column(tensors[i], column_name(names, i)));
  return columns;
}

Columns ragged_columns(const std::vector<at::Tensor>& values, const at::Tensor& offsets,
                       const std::vector<std::string>& names) {
  Columns columns;
  for (size_t i = 0; i < values.size(); ++i)
    columns.push_back(ragged_column(values[i], offsets, column_name(names, i)));
  return columns;
}

}  // namespace

TensorDataset::TensorDataset(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& names)
    : ColumnDataset(dense_columns(tensors, names), names) {}

RaggedDataset::RaggedDataset(const std::vector<at::Tensor>& values, const at::Tensor& offsets,
                             const std::vector<std::string>& names)
    : ColumnDataset(ragged_columns(values, offsets, names), names) {}

}  // namespace accel::data
