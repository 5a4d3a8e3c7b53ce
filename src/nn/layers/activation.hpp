// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "nn/module.hpp"

namespace accel::nn {

class Activation final : public Module {
 public:
  // A name as configurations of Hugging Face models have it: "relu", "gelu", "gelu_new", "silu", ...; NOT_FOUND for
  // others.
  explicit Activation(std::string_view name);
  static bool knows(std::string_view name);
  // Whether its backward needs the output, not the input.
  bool keeps_output() const { return keeps_output_; }

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  at::Tensor (*function_)(const at::Tensor&);
  bool keeps_output_;
};

}  // namespace accel::nn
