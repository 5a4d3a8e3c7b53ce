// Training precision: the autocast of forwards and the scale of losses, which prepared models and optimizers get.
#pragma once

#include <memory>

#include "accelerator/prepared_objects.hpp"
#include "config/generated/settings/prepare.hpp"
#include "precision/grad_scaler.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

class TrainingPrecision {
 public:
  // Both are those of the accelerator that has this. Losses are scaled as mixed precision needs it.
  TrainingPrecision(const state::State& state, PreparedObjects& prepared);
  // With the settings of another accelerator.
  TrainingPrecision(const state::State& state, PreparedObjects& prepared, const TrainingPrecision& other);

  // Both only before anything is prepared.
  void set_grad_scaler(const GradScalerSettings& settings);
  void set_autocast(const AutocastSettings& settings);
  const AutocastSettings& autocast() const { return autocast_; }

 private:
  void require_nothing_prepared(const char* what) const;
  void make_grad_scaler(const GradScalerSettings& settings);

  const state::State& state_;
  PreparedObjects& prepared_;
  AutocastSettings autocast_;
  GradScalerSettings grad_scaler_settings_;
};

}  // namespace accel::accelerator
