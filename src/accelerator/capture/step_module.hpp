// SPDX-License-Identifier: Apache-2.0
// Step module: a captured step as a module, whose calls take steps.
#pragma once

#include <memory>

#include "accelerator/accelerator.hpp"
#include "accelerator/capture/captured_step.hpp"
#include "nn/module.hpp"

namespace accel::accelerator {

class StepModule final : public nn::Module {
 public:
  // The forward of `step` computes one. kUnsupported if it has none.
  StepModule(std::shared_ptr<Accelerator> accelerator, const nn::ModulePtr& step, const CaptureSettings& settings);

  const CapturedStep::Counts& counts() const { return captured_.counts(); }

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  const std::shared_ptr<Accelerator> accelerator_;
  CapturedStep captured_;
};

}  // namespace accel::accelerator
