// Conversion between accel_value_t and the engine's nested value, c10::IValue.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <vector>

#include "accel.h"

namespace accel::capi {

// IValue has no element types: operators and scripts take LibTorch's number, JSON the name; kKept comes back from
// from_ivalue().
enum class DtypeForm { kInteger, kName, kKept };

// Converts a value, with copies of its containers; tensors are shared. Checks kinds and handles; `name` is the
// parameter's.
c10::IValue to_ivalue(const accel_value_t& value, const char* name, DtypeForm form = DtypeForm::kInteger);
std::vector<c10::IValue> to_ivalues(const accel_value_t* values, size_t count, const char* name);

// An owned value; throws before it owns anything. Typed lists become lists.
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
