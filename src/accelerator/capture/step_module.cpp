// SPDX-License-Identifier: Apache-2.0
#include "accelerator/capture/step_module.hpp"

#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

StepFunction step_function(const nn::ModulePtr& step) {
  require(step->has_forward(), Status::kUnsupported, "the module of kind ", step->kind(),
          " has no forward; expected one that computes a step");
  return [step](const c10::IValue& inputs) {
    const auto items = tree::sequence_items(inputs);
    return step->call(nn::Inputs(items.begin(), items.end()));
  };
}

}  // namespace

StepModule::StepModule(std::shared_ptr<Accelerator> accelerator, const nn::ModulePtr& step,
                       const CaptureSettings& settings)
    : Module("CapturedStep"),
      accelerator_(std::move(accelerator)),
      captured_(accelerator_->state(), accelerator_->prepared(), step_function(step), settings) {}

c10::IValue StepModule::forward(const nn::Inputs& inputs) {
  return captured_.run(tree::new_tuple({inputs.begin(), inputs.end()}));
}

}  // namespace accel::accelerator
