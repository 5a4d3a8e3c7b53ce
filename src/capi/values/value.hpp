// SPDX-License-Identifier: Apache-2.0
// Conversion between accel_value_t and the engine's nested value, c10::IValue.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <vector>

#include "accel.h"

namespace accel::capi {

// The engine's value. Containers and tensors are shared, so nothing that the engine gets here may be changed in place.
// Checks kinds and handles; `name` is the parameter's.
c10::IValue to_ivalue(const accel_value_t& value, const char* name);
std::vector<c10::IValue> to_ivalues(const accel_value_t* values, size_t count, const char* name);

// An owned value, which shares containers and tensors with the engine's. Throws before it owns anything, for what C
// cannot read.
accel_value_t from_ivalue(const c10::IValue& value);

// Disposes a value that a callback or from_ivalue() made.
class DisposeValue {
 public:
  explicit DisposeValue(accel_value_t& value) : value_(value) {}
  ~DisposeValue() { accel_value_dispose(&value_); }
  DisposeValue(const DisposeValue&) = delete;
  DisposeValue& operator=(const DisposeValue&) = delete;

 private:
  accel_value_t& value_;
};

// A handle for a tensor.
accel_tensor_t* new_tensor(at::Tensor tensor);

// Writes an output only when nothing can fail any more.
inline void give(accel_value_t* out, const c10::IValue& value) { *out = from_ivalue(value); }

}  // namespace accel::capi
