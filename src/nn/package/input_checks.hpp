// SPDX-License-Identifier: Apache-2.0
// Checks of the inputs of a package: its code trusts their shapes, and would read other memory for others.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"

namespace accel::nn {

class InputChecks {
 public:
  // `description` is what accel compile wrote, from the file `source`; null: nothing is known of the inputs, and the
  // code of the package checks them itself.
  InputChecks(const Json& description, c10::Device device, const std::string& source);

  bool are_known() const { return !inputs_.empty(); }
  // Names of the inputs of the forward, by position; empty: they have none.
  const std::vector<std::string>& names() const { return names_; }

  // The tensors for the code, in its order, of all leaves of the inputs. kTypeMismatch, kShapeMismatch,
  // kInvalidArgument for another constant; kUnsupported for what needs a gradient.
  std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& leaves) const;

 private:
  struct Dimension {
    std::string symbol;  // dimensions with the same one are equal; empty: the size is `least`
    int64_t least = 0;
    std::optional<int64_t> most;
  };
  struct Input {
    std::string name;  // "attention_mask"
    bool is_tensor = false;
    c10::ScalarType dtype{};
    std::vector<Dimension> dimensions;
    Json constant;  // of what is no tensor
  };
  using Sizes = std::vector<std::pair<const std::string*, int64_t>>;  // of symbols

  static Input read_input(const Json& described);
  void check_tensor(const Input& input, const at::Tensor& tensor, Sizes& sizes) const;
  void check_constant(const Input& input, const c10::IValue& value) const;

  c10::Device device_;
  std::vector<std::string> names_;
  std::vector<Input> inputs_;
};

}  // namespace accel::nn
