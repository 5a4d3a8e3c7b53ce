// SPDX-License-Identifier: Apache-2.0
// The parts of which items are made, each for all items of a dataset.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <memory>
#include <string>

#include "data/collate.hpp"
#include "data/item_structure.hpp"

namespace accel::data {

class Column {
 public:
  virtual ~Column() = default;
  virtual int64_t length() const = 0;
  virtual c10::IValue item(int64_t index) const = 0;
  // The rows together, stacked or padded by the collation, which is not a callback.
  virtual Part batch(c10::IntArrayRef indices, const Collation& collation) const = 0;
};

// Rows of one shape along the first dimension; shares the tensor's memory. `name` says in errors which one it is.
std::unique_ptr<const Column> dense_column(const at::Tensor& tensor, const std::string& name);

// Row i is entries [offsets[i], offsets[i + 1]) of `values` along the first dimension. `offsets` is int64 [rows + 1].
std::unique_ptr<const Column> ragged_column(const at::Tensor& values, const at::Tensor& offsets,
                                            const std::string& name);

// Text that is made when it is asked for.
std::unique_ptr<const Column> text_column(int64_t length, std::function<std::string(int64_t)> text);

}  // namespace accel::data
