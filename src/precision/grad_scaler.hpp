// Gradient scaler: dynamic loss scaling for float16. The loss is multiplied before backward so that small gradients do
// not underflow, gradients are divided before the step, and steps with infinite gradients are skipped (Micikevicius et
// al., "Mixed Precision Training", 2018). The scale evolves as in torch.amp.GradScaler.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "config/generated/settings/prepare/grad_scaler.hpp"
#include "tensor/stateful.hpp"

namespace accel::precision {

class ScaledGradients;

// When the scale shrinks, in the words of DeepSpeed. The defaults are the rules of torch.amp.GradScaler.
struct BackoffRules {
  bool is_constant = false;     // the scale never changes
  int64_t hysteresis = 1;       // overflows until it shrinks: all but the last one skip a step only
  bool is_consecutive = false;  // each step without an overflow, instead of each growth, allows as many again
  double least_scale = 0;       // an overflow there is an error; 0: there is no least
};

// The scale is a number on the CPU: every step has to wait for the check of overflows anyway.
class GradScaler final : public tensor::Stateful {
 public:
  explicit GradScaler(const GradScalerSettings& settings);

  // The factor for the next backward, which is counted.
  double scale_for_backward();
  double scale() const { return scale_; }
  int64_t growth_tracker() const { return growth_tracker_; }
  const GradScalerSettings& settings() const { return settings_; }

  // Begins again with these settings and rules.
  void follow(const GradScalerSettings& settings, const BackoffRules& rules);

  // After the step of one optimizer. Gradients of others that have the former scale are multiplied to the new one.
  void update(bool overflowed, const ScaledGradients* stepped);

  // The keys of torch.amp.GradScaler.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;

 private:
  friend class ScaledGradients;

  void shrink();

  GradScalerSettings settings_;
  BackoffRules rules_;
  int64_t tolerated_ = 1;  // overflows until the scale shrinks
  float scale_ = 1;        // in float32, as the reference has it
  int64_t growth_tracker_ = 0;
  int64_t backwards_ = 0;
  std::vector<std::weak_ptr<ScaledGradients>> users_;
};

// The gradients of one optimizer between a scaled backward and the step.
class ScaledGradients : public std::enable_shared_from_this<ScaledGradients> {
 public:
  using Parameters = std::function<std::vector<at::Tensor>()>;

  static std::shared_ptr<ScaledGradients> create(const std::shared_ptr<GradScaler>& scaler, Parameters parameters);

  // Divides them by the scale, once per step. An error if the optimizer has stepped since the latest backward: its
  // gradients are not scaled then.
  void unscale();
  // Whether one of them is infinite or NaN; unscales first, and waits for the device.
  bool overflowed();
  // After the step, or after it was skipped.
  void finish(bool overflowed);

 private:
  friend class GradScaler;
  ScaledGradients(std::shared_ptr<GradScaler> scaler, Parameters parameters)
      : scaler_(std::move(scaler)), parameters_(std::move(parameters)) {}

  bool carry_the_scale() const { return found_.empty() && stepped_at_ != scaler_->backwards_; }
  std::vector<std::vector<at::Tensor>> gradients_by_kernel() const;
  void multiply(double factor) const;

  std::shared_ptr<GradScaler> scaler_;
  Parameters parameters_;
  std::vector<at::Tensor> found_;  // a flag for each foreach call; not empty once they are unscaled
  int64_t stepped_at_ = 0;         // the number of backwards at the latest step
};

}  // namespace accel::precision
