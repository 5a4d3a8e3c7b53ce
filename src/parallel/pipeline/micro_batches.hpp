// Micro-batches: the rows of a batch, cut into parts.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace accel::parallel {

// The size of dimension 0 of the tensors in a tree, but for those without dimensions. Throws SHAPE_MISMATCH if they
// differ, INVALID_ARGUMENT if there are none; `what` names the tree.
int64_t count_rows(const c10::IValue& value, const char* what);

// The rows of each of `parts`: the first ones have one more where they are not divisible. Other leaves are in each
// part.
std::vector<c10::IValue> cut_rows(const c10::IValue& value, int64_t rows, int parts);

// Cuts fewer rows than parts, too: parts without rows have a copy of the last row, which does not count.
struct CountedRows {
  c10::IValue value;
  int64_t rows;  // of the value, from the first one on, that count
};
std::vector<CountedRows> cut_counted_rows(const c10::IValue& value, int64_t rows, int parts);

}  // namespace accel::parallel
