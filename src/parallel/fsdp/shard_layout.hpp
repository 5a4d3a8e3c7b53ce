// SPDX-License-Identifier: Apache-2.0
// Shard layout: the rows of a parameter that this rank stores, and the dtypes in which rows and whole parameter are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::parallel {

// Dimension 0 in equal parts, of which the last ones may be shorter or empty.
struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
int64_t rows_per_rank(int64_t rows, int ranks);
RowRange rows_of_rank(int64_t rows, int rank, int ranks);

class ShardLayout {
 public:
  // `compute_dtype` is that of the whole parameter. A parameter without a dimension is an error that names it.
  ShardLayout(const std::string& name, const at::Tensor& parameter, std::optional<at::ScalarType> compute_dtype,
              int rank, int ranks);

  const std::vector<int64_t>& shape() const { return shape_; }  // of the whole parameter
  std::vector<int64_t> shard_shape() const;
  const RowRange& rows() const { return rows_; }  // of the shard
  at::ScalarType dtype() const { return dtype_; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  // Elements that each rank contributes to the whole, with padding.
  int64_t elements_per_rank() const { return elements_per_rank_; }
  int64_t padded_elements() const { return elements_per_rank_ * ranks_; }

 private:
  std::vector<int64_t> shape_;
  at::ScalarType dtype_, compute_dtype_;
  int ranks_;
  RowRange rows_;
  int64_t elements_per_rank_;
};

}  // namespace accel::parallel
