#pragma once

#include "nn/module.hpp"

namespace accel::nn {

// Runs modules one after the other, as children "0", "1", ... The first one gets all inputs, each further one the
// former output.
class Sequential final : public Module {
 public:
  explicit Sequential(const std::vector<ModulePtr>& modules);

 protected:
  bool has_free_parts() const override { return true; }
  c10::IValue forward(const Inputs& inputs) override;
};

}  // namespace accel::nn
