// SPDX-License-Identifier: Apache-2.0
// Map-style datasets: items by index. Several threads read at once, so reading changes nothing. @accelerate
// torch.utils.data.Dataset
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "data/collate.hpp"

namespace accel::data {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t length() const = 0;

  // Indices are checked here, so that implementations need not.
  c10::IValue item(int64_t index) const;
  // The items as one value.
  c10::IValue batch(c10::IntArrayRef indices, const Collation& collation = {}) const;

  // Malformed rows that were left out on request, and files of other kinds.
  virtual int64_t num_skipped() const { return 0; }
  // Whether reading runs the application's code. Our threads do that only where it asked for workers.
  virtual bool calls_back() const { return false; }
  // A loader begins an epoch, for items that differ by epoch. Nothing reads meanwhile.
  virtual void begin_epoch(int64_t) const {}

 protected:
  virtual c10::IValue read_item(int64_t index) const = 0;
  // Overridden where items are cheaper to read together.
  virtual std::vector<c10::IValue> read_items(c10::IntArrayRef indices) const;
  // For rows that can be written straight into the batch.
  virtual c10::IValue read_batch(c10::IntArrayRef indices, const Collation& collation) const;
};

}  // namespace accel::data
