// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/shard_layout.hpp"

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/error.hpp"

namespace accel::parallel {

int64_t rows_per_rank(int64_t rows, int ranks) { return (rows + ranks - 1) / ranks; }

RowRange rows_of_rank(int64_t rows, int rank, int ranks) {
  const int64_t each = rows_per_rank(rows, ranks);
  const int64_t begin = std::min(rows, each * rank);
  return {begin, std::min(rows, begin + each)};
}

ShardLayout::ShardLayout(const std::string& name, const at::Tensor& parameter,
                         std::optional<at::ScalarType> compute_dtype, int rank, int ranks)
    : shape_(parameter.sizes().vec()),
      dtype_(parameter.scalar_type()),
      compute_dtype_(parameter.is_floating_point() ? compute_dtype.value_or(dtype_) : dtype_),
      ranks_(ranks) {
  require(!shape_.empty(), Status::kUnsupported, "parameter '", name,
          "' is a single number, which has no rows to share among the ranks; expected at least one dimension, shape "
          "[1], or a module that ignored_modules names");
  rows_ = rows_of_rank(shape_[0], rank, ranks);
  elements_per_rank_ = rows_per_rank(shape_[0], ranks) * c10::multiply_integers(c10::IntArrayRef(shape_).slice(1));
}

std::vector<int64_t> ShardLayout::shard_shape() const {
  std::vector<int64_t> shape = shape_;
  shape[0] = rows_.size();
  return shape;
}

}  // namespace accel::parallel
