// SPDX-License-Identifier: Apache-2.0
// Gradient scaler: dynamic loss scaling for float16. The loss is multiplied before backward so that small gradients do
// not underflow, gradients are divided before the step, and steps with infinite gradients are skipped (Micikevicius et
// al., "Mixed Precision Training", 2018). The scale evolves as in torch.amp.GradScaler.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "config/generated/settings/prepare/grad_scaler.hpp"
#include "precision/overflow_flag.hpp"
#include "tensor/stateful.hpp"

namespace accel::precision {

class ScaledGradients;
class ScaleRecording;

// When the scale shrinks, in the words of DeepSpeed. The defaults are the rules of torch.amp.GradScaler.
struct BackoffRules {
  bool is_constant = false;     // the scale never changes
  int64_t hysteresis = 1;       // overflows until it shrinks: all but the last one skip a step only
  bool is_consecutive = false;  // each step without an overflow, instead of each growth, allows as many again
  double least_scale = 0;       // an overflow there is an error; 0: there is no least
};

// The scale as it changes from step to step.
struct LossScale {
  float value = 1;  // in float32, as torch has it
  int64_t growth_tracker = 0;
  int64_t tolerated = 1;  // overflows until it shrinks
};

// Scalars on a device that its work reads and changes.
struct DeviceLossScale {
  at::Tensor value;           // float32
  at::Tensor growth_tracker;  // int32
  at::Tensor tolerated;       // int32
};

// Where gradients are on a device the scale changes there, by the flag of each step, and the host follows when it reads
// of the flags: nothing waits but a question for the scale.
class GradScaler final : public tensor::Stateful {
 public:
  explicit GradScaler(const GradScalerSettings& settings);

  // Counts a backward. Returns the scale on this device if the host does not know it yet; otherwise, an undefined
  // tensor: it is scale().
  at::Tensor begin_backward(c10::Device device);
  // The factor for the next backward, which is counted.
  double scale_for_backward();
  // These wait for a device that has yet to tell.
  double scale() const { return settled().value; }
  int64_t growth_tracker() const { return settled().growth_tracker; }
  const GradScalerSettings& settings() const { return settings_; }

  // Begins again with these settings and rules.
  void follow(const GradScalerSettings& settings, const BackoffRules& rules);

  // After the step of one optimizer. Gradients of others that have the former scale are multiplied to the new one.
  void update(bool overflowed, const ScaledGradients* stepped);
  // With a flag of a device. Waits only where an overflow may be the error of the least scale.
  void update(const std::shared_ptr<OverflowFlag>& overflow, const ScaledGradients* stepped);

  // The keys of torch.amp.GradScaler.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;

 private:
  friend class ScaledGradients;
  friend class ScaleRecording;

  void begin(const LossScale& scale);
  const LossScale& settled() const;
  void bring_to(c10::Device device);
  // Counts the steps whose flags have arrived.
  void hear() const;
  void count(bool overflowed) const;
  void count_on_device(const at::Tensor& found);
  bool may_fail() const;
  void hear_later(const std::shared_ptr<OverflowFlag>& overflow);
  // 1 / scale on a device.
  at::Tensor inverse_on(c10::Device device) const;
  std::vector<std::shared_ptr<ScaledGradients>> carriers(const ScaledGradients* stepped) const;

  GradScalerSettings settings_;
  BackoffRules rules_;
  mutable LossScale scale_;                                    // without the steps in unknown_
  mutable std::deque<std::shared_ptr<OverflowFlag>> unknown_;  // of the latest steps
  std::optional<DeviceLossScale> on_device_;                   // with them
  int64_t backwards_ = 0;
  std::vector<std::weak_ptr<ScaledGradients>> users_;
  std::vector<std::shared_ptr<OverflowFlag>>* recorded_ = nullptr;  // while a device records a step: gets its flags
};

// The gradients of one optimizer between a scaled backward and the step.
class ScaledGradients : public std::enable_shared_from_this<ScaledGradients> {
 public:
  using Parameters = std::function<std::vector<at::Tensor>()>;

  static std::shared_ptr<ScaledGradients> create(const std::shared_ptr<GradScaler>& scaler, Parameters parameters);

  // Divides them by the scale, once per step. An error if the optimizer has stepped since the latest backward: its
  // gradients are not scaled then.
  void unscale();
  // A float32 scalar, not 0 if one of them is infinite or NaN; unscales first. It is on their device if all are on one;
  // otherwise, the host waits for it.
  at::Tensor found();
  bool overflowed() { return found().item<float>() != 0; }
  // A flag of what was found.
  std::shared_ptr<OverflowFlag> flag(at::Tensor found) const;
  // After the step, or after it was skipped.
  void finish(bool overflowed);
  void finish(const std::shared_ptr<OverflowFlag>& overflow);

 private:
  friend class GradScaler;
  friend class ScaleRecording;
  ScaledGradients(std::shared_ptr<GradScaler> scaler, Parameters parameters)
      : scaler_(std::move(scaler)), parameters_(std::move(parameters)) {}

  bool carry_the_scale() const { return found_.empty() && stepped_at_ != scaler_->backwards_; }
  std::vector<std::vector<at::Tensor>> gradients_by_kernel() const;
  void multiply(const at::Tensor& factor) const;

  std::shared_ptr<GradScaler> scaler_;
  Parameters parameters_;
  std::vector<at::Tensor> found_;  // a flag for each device; not empty once they are unscaled
  int64_t stepped_at_ = 0;         // the number of backwards at the latest step
};

}  // namespace accel::precision
