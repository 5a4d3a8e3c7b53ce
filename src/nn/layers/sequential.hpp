// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

constexpr const char* kProgramChain = "Pipeline";  // the kind of a chain of the program's modules

// Runs modules one after the other, as children "0", "1", ... The first one gets all inputs, each further one the
// former output. Each is a part of its chain. In a chain of the program, one that is such a chain itself has parts of
// its own, so that names of parts have levels; a child without a forward is no part: it is not run, and every stage has
// it.
class Sequential final : public Module {
 public:
  explicit Sequential(const std::vector<ModulePtr>& modules, std::string kind = "Sequential");

  ModuleChain chain() override;

 protected:
  bool has_free_parts() const override { return true; }
  c10::IValue forward(const Inputs& inputs) override;

 private:
  bool computes(const Module& child) const;
  void append_parts(const std::string& path, ModuleChain& chain) const;
};

}  // namespace accel::nn
