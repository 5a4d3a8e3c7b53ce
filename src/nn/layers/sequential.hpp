#pragma once

#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

// Runs modules one after the other, as children "0", "1", ... The first one gets all inputs, each further one the
// former output. Each is a part of its chain.
class Sequential final : public Module {
 public:
  explicit Sequential(const std::vector<ModulePtr>& modules, std::string kind = "Sequential");

  ModuleChain chain() override;

 protected:
  bool has_free_parts() const override { return true; }
  c10::IValue forward(const Inputs& inputs) override;
};

}  // namespace accel::nn
