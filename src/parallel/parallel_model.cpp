// SPDX-License-Identifier: Apache-2.0
#include "parallel/parallel_model.hpp"

#include <utility>

namespace accel::parallel {

std::vector<at::Tensor> ParallelModel::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : module_->parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  return gradients;
}

namespace {

// Not a module of the tree: also created temporarily, for modules that are not prepared.
class SingleProcessModel final : public ParallelModel {
 public:
  explicit SingleProcessModel(nn::ModulePtr module) : ParallelModel("SingleProcessModel", std::move(module)) {}

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override { return module()->call(inputs); }
};

}  // namespace

ParallelModelPtr single_process_model(nn::ModulePtr module) {
  return std::make_shared<SingleProcessModel>(std::move(module));
}

}  // namespace accel::parallel
