// SPDX-License-Identifier: Apache-2.0
// Micro-batches: the rows of a batch, cut into parts, and joined again.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace accel::parallel {

// The size of dimension 0 of the tensors in a tree, but for those without dimensions. Throws SHAPE_MISMATCH if they
// differ, INVALID_ARGUMENT if there are none; `what` names the tree.
int64_t count_rows(const c10::IValue& value, const char* what);
// The rows of the first tensor with dimensions, whatever others have. Throws INVALID_ARGUMENT if there is none.
int64_t count_first_rows(const c10::IValue& batch);

// The rows of each of `parts`: the first ones have one more where they are not divisible. Fewer rows than parts: one
// each, which are more than there are.
std::vector<int64_t> even_sizes(int64_t rows, int64_t parts);

// Tensors with that many rows are cut in dimension 0; all else is whole in each part. Where sizes sum up to more than
// the rows, the last row is repeated.
std::vector<c10::IValue> cut_rows(const c10::IValue& value, int64_t rows, const std::vector<int64_t>& sizes);
// The reverse, without what was repeated: each tensor of a part has a row for each one of the part, else
// SHAPE_MISMATCH. A part that is alone and was not filled up is returned as it is. What is no tensor is that of the
// first part.
c10::IValue join_rows(const std::vector<c10::IValue>& parts, int64_t rows, const std::vector<int64_t>& sizes);

}  // namespace accel::parallel
