// SPDX-License-Identifier: Apache-2.0
// An element type as a nested value: LibTorch has no kind of value for it.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace accel::tree {

struct DtypeHolder final : torch::CustomClassHolder {
  explicit DtypeHolder(c10::ScalarType dtype) : dtype(dtype) {}

  const c10::ScalarType dtype;
};

inline c10::IValue dtype_value(c10::ScalarType dtype) {
  return c10::IValue::make_capsule(c10::make_intrusive<DtypeHolder>(dtype));
}

// Nothing for a value of another kind.
inline std::optional<c10::ScalarType> dtype_of(const c10::IValue& value) {
  const auto* const holder = value.isCapsule() ? dynamic_cast<const DtypeHolder*>(value.toCapsule().get()) : nullptr;
  return holder == nullptr ? std::nullopt : std::optional<c10::ScalarType>(holder->dtype);
}

}  // namespace accel::tree
