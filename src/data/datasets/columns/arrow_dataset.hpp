// SPDX-License-Identifier: Apache-2.0
// Record batches of Arrow, and so what Arrow reads: IPC files, Parquet, Feather, databases.
#pragma once

#include <memory>

#include "data/dataset.hpp"
#include "data/datasets/columns/arrow_column.hpp"

namespace accel::data {

// An item is a map from each column's name to its row: a number as a tensor without dimension, text, or a tensor for a
// list. Both take what they are given over in any case.
std::shared_ptr<const Dataset> arrow_dataset(ArrowSchema& schema, ArrowArray& array, const NullValue& null_value);

// All record batches of a stream, which is read to its end now.
std::shared_ptr<const Dataset> arrow_dataset(ArrowArrayStream& stream, const NullValue& null_value);

}  // namespace accel::data
