// How the items of a batch become one value. @accelerate torch.utils.data.default_collate
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace accel::data {

// Rows of different lengths are filled up to the longest of their batch.
struct Padding {
  double value = 0;
  int64_t multiple_of = 1;  // lengths are rounded up to it
  bool at_start = false;    // the filling comes before the row
  bool masks = false;       // a bool tensor tells what is no filling: under "<key>_mask" in a map, elsewhere behind it
};

struct Collation {
  enum class Kind : uint8_t { kStack, kPad, kCallback };
  Kind kind = Kind::kStack;
  Padding padding;
  std::function<c10::IValue(std::vector<c10::IValue> items)> callback;
};

// Items of one structure become one value of that structure: tensors are stacked (padded in their first dimension),
// numbers become tensors (int64, float64, bool), other leaves lists with one entry an item.
c10::IValue collate(const Collation& collation, std::vector<c10::IValue> items);

}  // namespace accel::data
