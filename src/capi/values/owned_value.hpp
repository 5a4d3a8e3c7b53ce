// SPDX-License-Identifier: Apache-2.0
// An accel_value_t with an owner, and what a value of each kind must have.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "accel.h"
#include "capi/values/map_key.hpp"

namespace c10 {
struct IValue;
}

namespace accel::capi {

const char* value_kind_name(int32_t kind);  // "LIST"
bool is_container(const accel_value_t& value);
bool is_sequence(const accel_value_t& value);  // a LIST or TUPLE

// Refuses kinds that do not exist, and values that lack what their kind needs; does not look into containers.
void check_value(const accel_value_t& value, const char* name);
// Refuses what is not UTF-8; `name` is the parameter's.
void check_text(std::string_view text, const char* name);

// An accel_value_t with an owner. The only way in which this library holds one for longer than a call.
class OwnedValue {
 public:
  OwnedValue() = default;
  // Takes over what the value owns.
  explicit OwnedValue(const accel_value_t& value) : value_(value) {}
  OwnedValue(OwnedValue&& other) noexcept : value_(other.release()) {}
  OwnedValue& operator=(OwnedValue&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~OwnedValue() { accel_value_dispose(&value_); }

  const accel_value_t& get() const { return value_; }
  accel_value_t release() { return std::exchange(value_, accel_value_t ACCEL_VALUE_INIT); }

 private:
  accel_value_t value_ = ACCEL_VALUE_INIT;
};

// A value with an owner of its own: containers and tensors are shared, texts and bytes copied. `name` is the
// parameter's.
OwnedValue copy_value(const accel_value_t& value, const char* name);
OwnedValue string_value(std::string_view text);
OwnedValue bytes_value(std::string_view data, const char* type);

// `container`: a list, tuple or map.
OwnedValue container_value(c10::IValue container);

MapKey map_key(const accel_value_t& key);  // throws for a value that cannot be one

}  // namespace accel::capi
