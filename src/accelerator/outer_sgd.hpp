// The outer step of DiLoCo: SGD on how far the ranks have come from the weights of their last meeting.
#pragma once

#include "optim/parameter_optimizer.hpp"
#include "parallel/localsgd/local_sgd.hpp"

namespace accel::accelerator {

class OuterSgd final : public parallel::OuterStep {
 public:
  // `weights` are where the ranks meet first.
  OuterSgd(const optim::GivenSettings& settings, const std::vector<at::Tensor>& weights);

  void apply(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& means) override;
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;

 private:
  std::vector<at::Tensor> met_;  // weights of the last meeting; the optimizer's parameters
  optim::ParameterOptimizer optimizer_;
};

}  // namespace accel::accelerator
