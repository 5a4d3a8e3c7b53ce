// SPDX-License-Identifier: Apache-2.0
// Columns of Arrow record batches.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/datasets/columns/arrow_array.hpp"
#include "data/datasets/columns/column.hpp"

namespace accel::data {

// The value that replaces nulls: this number, the text "", or a row without entries. Without one a null is an error.
using NullValue = std::optional<double>;

// Rows [begin, begin + length) of a column, whose memory `owner` keeps. Numbers stay where they are: a column is copied
// only where it has nulls, bits, or memory that is not aligned. Numbers, bool, text, and lists (also of fixed size) of
// numbers; kUnsupported for others.
std::unique_ptr<const Column> arrow_column(const ArrowArrayPtr& owner, const ArrowSchema& schema,
                                           const ArrowArray& array, int64_t begin, int64_t length,
                                           const NullValue& null_value);

}  // namespace accel::data
