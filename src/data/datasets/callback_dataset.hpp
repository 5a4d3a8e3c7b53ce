// SPDX-License-Identifier: Apache-2.0
// A dataset of callbacks of the application.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "data/dataset.hpp"

namespace accel::data {

struct ItemFunctions {
  std::function<int64_t()> length;
  std::function<c10::IValue(int64_t index)> get;
  std::function<std::vector<c10::IValue>(c10::IntArrayRef indices)> get_items;  // may be missing
  std::function<void(int64_t epoch)> begin_epoch;                               // may be missing
};

// Asks for its length each time, so that one that changes is seen.
class CallbackDataset final : public Dataset {
 public:
  explicit CallbackDataset(ItemFunctions functions) : functions_(std::move(functions)) {}
  int64_t length() const override;
  bool calls_back() const override { return true; }
  void begin_epoch(int64_t epoch) const override {
    if (functions_.begin_epoch) functions_.begin_epoch(epoch);
  }

 protected:
  c10::IValue read_item(int64_t index) const override { return functions_.get(index); }
  std::vector<c10::IValue> read_items(c10::IntArrayRef indices) const override;

 private:
  ItemFunctions functions_;
};

}  // namespace accel::data
