// SPDX-License-Identifier: Apache-2.0
// An operator argument as passed by the caller: a borrowed view, so that nothing is copied before the schema is known.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace accel::tensor {

class Argument {
 public:
  enum class Kind : uint8_t { kNone, kBool, kInteger, kNumber, kString, kTensor, kList, kMap, kDtype, kDevice };

  // Lists are not copied: their items are accessed one by one.
  using ItemFunction = Argument (*)(const void* list, size_t index);

  Argument() : kind_(Kind::kNone), integer_(0) {}
  static Argument boolean(bool value) { return Argument(Kind::kBool, static_cast<int64_t>(value)); }
  static Argument integer(int64_t value) { return Argument(Kind::kInteger, value); }
  static Argument number(double value) {
    Argument argument(Kind::kNumber, 0);
    argument.number_ = value;
    return argument;
  }
  static Argument string(const char* value) {
    Argument argument(Kind::kString, 0);
    argument.string_ = value;
    return argument;
  }
  static Argument tensor(const at::Tensor& value) {
    Argument argument(Kind::kTensor, 0);
    argument.tensor_ = &value;
    return argument;
  }
  static Argument dtype(c10::ScalarType value) { return Argument(Kind::kDtype, static_cast<int64_t>(value)); }
  static Argument device(c10::Device value) {
    Argument argument(Kind::kDevice, 0);
    argument.device_ = value;
    return argument;
  }
  static Argument list(const void* items, size_t size, ItemFunction item) {
    Argument argument(Kind::kList, static_cast<int64_t>(size));
    argument.items_ = items;
    argument.item_ = item;
    return argument;
  }
  // No operator takes one; only for the error message.
  static Argument map() { return Argument(Kind::kMap, 0); }

  Kind kind() const { return kind_; }
  bool as_bool() const { return integer_ != 0; }
  int64_t as_integer() const { return integer_; }
  double as_number() const { return number_; }
  const char* as_string() const { return string_; }
  const at::Tensor& as_tensor() const { return *tensor_; }
  c10::ScalarType as_dtype() const { return static_cast<c10::ScalarType>(integer_); }
  c10::Device as_device() const { return device_; }
  size_t size() const { return static_cast<size_t>(integer_); }
  Argument operator[](size_t index) const { return item_(items_, index); }

 private:
  Argument(Kind kind, int64_t integer) : kind_(kind), integer_(integer) {}

  Kind kind_;
  c10::Device device_{c10::DeviceType::CPU};
  union {
    int64_t integer_;  // also the truth, the dtype and the size of a list
    double number_;
    const char* string_;
    const at::Tensor* tensor_;
  };
  const void* items_ = nullptr;
  ItemFunction item_ = nullptr;
};

}  // namespace accel::tensor
