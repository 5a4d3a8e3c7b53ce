// SPDX-License-Identifier: Apache-2.0
// Optimizer update: the part of a prepared optimizer's step that all ranks of a model take together. Gradients are
// completed, unscaled and clipped; an overflow on one rank is one on all, and ranks without inputs go along.
#pragma once

#include <memory>
#include <string>

#include "accelerator/steps/exchange_check.hpp"
#include "accelerator/steps/expert_balance.hpp"
#include "accelerator/steps/step_clipping.hpp"
#include "accelerator/steps/update_outcome.hpp"
#include "comm/communicator.hpp"
#include "optim/optimizer.hpp"
#include "parallel/placed_parameters.hpp"
#include "trace/step_times.hpp"

namespace accel::precision {
class GradScaler;
class OverflowFlag;
class ScaledGradients;
}  // namespace accel::precision

namespace accel::accelerator {

class Fp8Scales;

class OptimizerUpdate {
 public:
  // `scaler` is null if losses are not scaled, `clipping` if steps do not clip, and `exchanged` if gradients are not
  // checked. The ranks name the optimizer by its `index` among the accelerator's, and train on `device`, or on the CPU.
  OptimizerUpdate(std::shared_ptr<optim::Optimizer> optimizer, const std::shared_ptr<precision::GradScaler>& scaler,
                  std::shared_ptr<StepTimes> step_times, std::shared_ptr<const parallel::PlacedParameters> placed,
                  std::shared_ptr<const StepClipping> clipping, std::shared_ptr<ExchangeCheck> exchanged, size_t index,
                  std::shared_ptr<const ExpertBalance> balance = nullptr, std::shared_ptr<Fp8Scales> fp8 = nullptr,
                  c10::Device device = c10::kCPU);

  // Returns whether parameters were updated; true if only the device knows.
  bool step();
  bool step_by(const optim::Closure& closure);
  // Throws if a closure cannot compute the gradients of a step.
  void require_closures() const;
  // Whether the latest update was skipped.
  UpdateOutcome& outcome() const { return *outcome_; }
  // On a rank without inputs: the step that the others make, with the settings of rank `source`.
  void follow(comm::Communicator& ranks, int source);
  // Collective: all ranks have the settings of rank `source`, such as the learning rate.
  void share_settings(comm::Communicator& ranks, int source);
  // Whether other ranks store other parts of a parameter.
  bool updates_parts() const;
  // Unscales the gradients, once per step.
  void unscale();

 private:
  void check_exchanged();
  void finish_models() const;
  void announce();
  bool run();
  // Collective among the ranks that store parts of any model.
  std::shared_ptr<precision::OverflowFlag> find_overflow() const;
  void step_scaled();
  void balance_experts() const;
  void update_scales() const;
  void clip();

  std::shared_ptr<optim::Optimizer> optimizer_;
  std::shared_ptr<precision::ScaledGradients> scaled_;
  std::shared_ptr<StepTimes> step_times_;
  std::shared_ptr<const parallel::PlacedParameters> placed_;
  std::shared_ptr<const StepClipping> clipping_;
  std::shared_ptr<ExchangeCheck> exchanged_;
  size_t index_;
  std::shared_ptr<const ExpertBalance> balance_;  // null: nothing follows a step
  std::shared_ptr<Fp8Scales> fp8_;                // null: the same
  const c10::Device device_;
  const std::unique_ptr<UpdateOutcome> outcome_ = std::make_unique<UpdateOutcome>();
};

}  // namespace accel::accelerator
