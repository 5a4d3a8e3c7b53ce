// Row chunks: cuts the rows of a batch into chunks, and joins what has been computed of them.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "parallel/pipelined_forward.hpp"

namespace accel::parallel {

// The rows of the first tensor with dimensions; none or no row is INVALID_ARGUMENT.
int64_t rows_of(const c10::IValue& batch);
std::vector<int64_t> chunk_sizes(int64_t rows, const RowCut& cut);

// Tensors with as many rows as the batch are cut in dimension 0; all else is whole in each chunk. Where sizes sum up to
// more than the rows, the last row is repeated.
std::vector<c10::IValue> cut_rows(const c10::IValue& batch, int64_t rows, const std::vector<int64_t>& sizes);
// The reverse: each tensor of a chunk has a row for each one of the chunk, else SHAPE_MISMATCH. A chunk that is alone
// and was not filled up is returned as it is. What is no tensor is that of the first chunk.
c10::IValue join_rows(const std::vector<c10::IValue>& chunks, int64_t rows, const std::vector<int64_t>& sizes);

}  // namespace accel::parallel
