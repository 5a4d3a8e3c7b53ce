// SPDX-License-Identifier: Apache-2.0
// Writer of pickles: the operations that make a value.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>

#include "checkpoint/formats/torch/pickle_stream.hpp"

namespace accel::checkpoint {

class PickleWriter {
 public:
  // Writes the operations that make a tensor.
  using TensorWriter = std::function<void(const at::Tensor& tensor, PickleStream& pickle)>;
  explicit PickleWriter(TensorWriter write_tensor) : write_tensor_(std::move(write_tensor)) {}

  // The pickle of a value. kTypeMismatch for what torch's files cannot hold.
  std::string pickle(const c10::IValue& value);

 private:
  void add_value(const c10::IValue& value, const std::string& path, int depth);
  void add_capsule(const c10::IValue& value, const std::string& path);
  void add_items(c10::ArrayRef<c10::IValue> items, const std::string& path, int depth);
  void add_list(c10::ArrayRef<c10::IValue> items, const std::string& path, int depth);
  void add_map(const c10::impl::GenericDict& map, const std::string& path, int depth);

  TensorWriter write_tensor_;
  PickleStream stream_;
};

}  // namespace accel::checkpoint
