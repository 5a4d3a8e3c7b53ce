// SPDX-License-Identifier: Apache-2.0
// Stage module: a model of which this rank has some stages, as one module that computes any of them. Kinds of data
// parallelism, precision and recompute take it as any other. Its children are those of the model, so that names stay,
// but lists where a module has parts of the chain.
#pragma once

#include "nn/module.hpp"
#include "nn/module_chain.hpp"
#include "parallel/pipeline/cut/stage_cut.hpp"

namespace accel::parallel {

// Inputs: the number of the stage, and the output of the stage before it; of the first stage, a tuple of the model's
// inputs.
class StageModule final : public nn::Module {
 public:
  // `begins` has the first part of each stage.
  StageModule(const nn::Module& model, nn::ModuleChain chain, StageBegins begins);
  std::vector<std::string> input_names() const override { return {"stage", "value"}; }

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  const nn::ModuleChain chain_;
  const StageBegins begins_;
};

}  // namespace accel::parallel
