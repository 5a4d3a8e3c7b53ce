// SPDX-License-Identifier: Apache-2.0
// Training precision: the autocast of forwards and the scale of losses, which prepared models and optimizers get.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "accelerator/prepared_objects.hpp"
#include "config/generated/settings/prepare/autocast.hpp"
#include "config/generated/settings/prepare/grad_scaler.hpp"
#include "state/state.hpp"

namespace accel {
struct DeepspeedLossScale;
struct Fp8Settings;
namespace precision {
struct Fp8Recipe;
}
}  // namespace accel

namespace accel::accelerator {

class TrainingPrecision {
 public:
  using Fp8Filter = std::function<bool(const std::string& name, const at::Tensor& weight)>;

  // Both are those of the accelerator that has this. Losses are scaled as mixed precision needs it.
  TrainingPrecision(const state::State& state, PreparedObjects& prepared);
  TrainingPrecision(const TrainingPrecision&) = delete;
  // With the settings of another accelerator.
  TrainingPrecision(const state::State& state, PreparedObjects& prepared, const TrainingPrecision& other);

  // All only before anything is prepared.
  void set_grad_scaler(const GradScalerSettings& settings);
  void set_fp8(const Fp8Settings& settings);
  void set_fp8_filter(Fp8Filter filter);
  void set_autocast(const AutocastSettings& settings);
  const AutocastSettings& autocast() const { return autocast_; }
  // Null unless mixed precision is fp8.
  std::shared_ptr<const precision::Fp8Recipe> fp8() const;
  // DeepSpeed's file says how losses are scaled, unless the program has; without one it is as at first. Only the first
  // model's file counts.
  void follow_loss_scale(const std::optional<DeepspeedLossScale>& scale);

 private:
  void require_nothing_prepared(const char* what) const;
  void make_grad_scaler(const std::optional<GradScalerSettings>& given);

  const state::State& state_;
  PreparedObjects& prepared_;
  AutocastSettings autocast_;
  std::shared_ptr<const Fp8Settings> fp8_;  // by set_fp8(); null: defaults
  Fp8Filter fp8_filter_;
  std::optional<GradScalerSettings> own_grad_scaler_;  // by set_grad_scaler()
  bool follows_file_ = false;
};

}  // namespace accel::accelerator
