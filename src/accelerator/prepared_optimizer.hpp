// SPDX-License-Identifier: Apache-2.0
// Prepared optimizer: steps only when gradients are complete.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "accelerator/steps/exchange_check.hpp"
#include "accelerator/steps/optimizer_update.hpp"
#include "accelerator/steps/step_clipping.hpp"
#include "optim/optimizer.hpp"
#include "parallel/placed_parameters.hpp"
#include "state/gradient_state.hpp"
#include "trace/step_times.hpp"

namespace accel::precision {
class GradScaler;
}

namespace accel::accelerator {

class PreparedOptimizer final : public optim::Optimizer {
 public:
  // The arguments are those of OptimizerUpdate.
  PreparedOptimizer(std::shared_ptr<optim::Optimizer> optimizer,
                    std::shared_ptr<const state::GradientState> gradient_state,
                    const std::shared_ptr<precision::GradScaler>& scaler, std::shared_ptr<StepTimes> step_times,
                    std::shared_ptr<const parallel::PlacedParameters> placed,
                    std::shared_ptr<const StepClipping> clipping = nullptr,
                    std::shared_ptr<ExchangeCheck> exchanged = nullptr, size_t index = 0,
                    std::shared_ptr<const ExpertBalance> balance = nullptr, std::shared_ptr<Fp8Scales> fp8 = nullptr,
                    c10::Device device = c10::kCPU);

  // Called behind each update, with those that were skipped.
  void set_after_update(std::function<void()> action) { after_update_ = std::move(action); }

  bool step() override;
  bool step_by(const optim::Closure& closure) override;
  void train(bool training) override { optimizer_->train(training); }
  bool step_was_skipped() const override { return update_.outcome().was_skipped(); }
  bool knows_step() const override { return update_.outcome().is_known(); }
  void when_step_is_known(std::function<void()> action) override { update_.outcome().when_known(std::move(action)); }
  void zero_grad(bool set_to_none) override {
    if (gradient_state_->sync_gradients()) optimizer_->zero_grad(set_to_none);
  }
  const std::vector<optim::ParameterGroup>& groups() const override {
    update_.outcome().make_waiting_calls();  // schedulers change settings
    return optimizer_->groups();
  }
  optim::ParameterGroup& group(size_t index) override {
    update_.outcome().make_waiting_calls();
    return optimizer_->group(index);
  }
  void add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                 std::optional<double> weight_decay) override {
    optimizer_->add_group(std::move(parameters), lr, weight_decay);
  }
  c10::ArrayRef<optim::Setting> settings() const override { return optimizer_->settings(); }
  void check_settings(const optim::ParameterGroup& group) const override { optimizer_->check_settings(group); }
  bool is_elementwise() const override { return optimizer_->is_elementwise(); }
  std::optional<bool> is_like_parameter(std::string_view entry) const override {
    return optimizer_->is_like_parameter(entry);
  }
  int64_t state_bytes() const override { return optimizer_->state_bytes(); }
  int64_t expected_state_bytes(const at::Tensor& parameter) const override {
    return optimizer_->expected_state_bytes(parameter);
  }
  void write_device_rates() override {
    update_.outcome().make_waiting_calls();
    optimizer_->write_device_rates();
  }
  c10::IValue state_dict() const override {
    update_.outcome().settle();
    return optimizer_->state_dict();
  }
  void load_state_dict(const c10::IValue& state_dict) override {
    update_.outcome().settle();
    optimizer_->load_state_dict(state_dict);
  }

  const std::shared_ptr<optim::Optimizer>& inner() const { return optimizer_; }
  // The work that ranks do together; its steps are taken by step() alone.
  OptimizerUpdate& update() { return update_; }

 private:
  std::shared_ptr<optim::Optimizer> optimizer_;
  std::shared_ptr<const state::GradientState> gradient_state_;
  OptimizerUpdate update_;
  std::function<void()> after_update_;
};

}  // namespace accel::accelerator
