// SPDX-License-Identifier: Apache-2.0
// Bytes as a value, a kind that LibTorch lacks.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <utility>

namespace accel::tree {

struct Bytes final : torch::CustomClassHolder {
  Bytes(std::string data, std::string type) : data(std::move(data)), type(std::move(type)) {}

  const std::string data;
  const std::string type;  // their format, for example "python/pickle"; empty for plain bytes
};

inline c10::IValue bytes_value(std::string data, std::string type) {
  return c10::IValue::make_capsule(c10::make_intrusive<Bytes>(std::move(data), std::move(type)));
}

// Null for a value of another kind.
inline const Bytes* bytes_of(const c10::IValue& value) {
  return value.isCapsule() ? dynamic_cast<const Bytes*>(value.toCapsule().get()) : nullptr;
}

}  // namespace accel::tree
