// SPDX-License-Identifier: Apache-2.0
// Owners of Arrow's structs. Taking one over moves it, as the specification asks: the caller's copy is marked released.
#pragma once

#include <memory>

#include "data/datasets/columns/arrow_abi.hpp"

namespace accel::data {

template <typename Struct>
class ArrowOwner {
 public:
  ArrowOwner() = default;
  explicit ArrowOwner(Struct& given) : held_(given) { given.release = nullptr; }
  ArrowOwner(const ArrowOwner&) = delete;
  ArrowOwner& operator=(const ArrowOwner&) = delete;
  ~ArrowOwner() {
    if (held_.release != nullptr) held_.release(&held_);
  }

  Struct& get() { return held_; }
  const Struct& get() const { return held_; }

 private:
  Struct held_{};
};

// Columns that use an array's memory keep it alive.
using ArrowArrayPtr = std::shared_ptr<const ArrowOwner<ArrowArray>>;

// Whether row `index` of an array, counted from its own offset, has a value.
bool arrow_is_valid(const ArrowArray& array, int64_t index);
// Nulls among rows [begin, begin + length). Counted where the array does not say.
int64_t arrow_null_count(const ArrowArray& array, int64_t begin, int64_t length);

}  // namespace accel::data
