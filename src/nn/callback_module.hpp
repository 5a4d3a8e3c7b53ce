// SPDX-License-Identifier: Apache-2.0
// Callback module: a module whose forward is a function of the application.
#pragma once

#include "nn/module.hpp"

namespace accel::nn {

using Forward = std::function<c10::IValue(Module& module, const Inputs& inputs)>;

class CallbackModule final : public Module {
 public:
  explicit CallbackModule(std::string kind) : Module(std::move(kind)) {}

  void set_input_names(std::vector<std::string> names) { input_names_ = std::move(names); }
  std::vector<std::string> input_names() const override { return input_names_; }
  bool has_forward() const override { return forward_ != nullptr; }
  void set_forward(Forward forward) { forward_ = std::make_shared<const Forward>(std::move(forward)); }

 protected:
  bool has_free_parts() const override { return true; }
  c10::IValue forward(const Inputs& inputs) override {
    if (forward_ == nullptr) return Module::forward(inputs);
    const auto held = forward_;  // the function may replace itself
    return (*held)(*this, inputs);
  }

 private:
  std::vector<std::string> input_names_;
  std::shared_ptr<const Forward> forward_;
};

}  // namespace accel::nn
