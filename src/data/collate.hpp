// SPDX-License-Identifier: Apache-2.0
// Collation: the items of a batch become one value. @accelerate torch.utils.data.default_collate
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "data/batches/padded_rows.hpp"

namespace accel::data {

using CollateFunction = std::function<c10::IValue(std::vector<c10::IValue> items)>;

struct Collation {
  enum class Kind : uint8_t { kStack, kPad, kCallback };
  Kind kind = Kind::kStack;
  Padding padding;
  CollateFunction callback;
  bool page_locked = false;  // host memory of the batches

  // Null where rows are stacked.
  const Padding* row_padding() const { return kind == Kind::kPad ? &padding : nullptr; }
  // Options of a batch whose rows have these, for tensor::empty_on_host().
  at::TensorOptions batch_options(const at::TensorOptions& rows) const {
    return rows.requires_grad(false).pinned_memory(page_locked && rows.device().is_cpu());
  }
};

// Items of one structure become one value of that structure: tensors are stacked (padded in their first dimension),
// numbers become tensors (int64, float64, bool), other leaves lists with one entry an item. Errors name an item by its
// place in the batch and, where `indices` are given, by its number in the dataset.
c10::IValue collate(const Collation& collation, std::vector<c10::IValue> items, c10::IntArrayRef indices = {});

}  // namespace accel::data
