// SPDX-License-Identifier: Apache-2.0
#include "accelerator/training_precision.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/deepspeed_config.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/fp8/fp8.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/precedence.hpp"
#include "precision/fp8_recipe.hpp"
#include "precision/grad_scaler.hpp"

namespace accel::accelerator {

TrainingPrecision::TrainingPrecision(const state::State& state, PreparedObjects& prepared)
    : state_(state), prepared_(prepared) {
  make_grad_scaler({});
}

TrainingPrecision::TrainingPrecision(const state::State& state, PreparedObjects& prepared,
                                     const TrainingPrecision& other)
    : state_(state), prepared_(prepared), autocast_(other.autocast_), fp8_(other.fp8_), fp8_filter_(other.fp8_filter_) {
  make_grad_scaler(other.own_grad_scaler_);
}

void TrainingPrecision::require_nothing_prepared(const char* what) const {
  require(prepared_.models.empty() && prepared_.optimizers.empty(), Status::kInvalidState, what,
          " cannot change after ", prepared_.models.empty() ? "an optimizer" : "a model",
          " was prepared; set it before, or after accel_free_memory()");
}

void TrainingPrecision::make_grad_scaler(const std::optional<GradScalerSettings>& given) {
  const GradScalerSettings settings = given.value_or(GradScalerSettings());
  check_settings(settings);
  own_grad_scaler_ = given;
  follows_file_ = false;
  prepared_.grad_scaler.reset();
  if (settings.enabled.value_or(state_.settings().mixed_precision == Precision::kFp16))
    prepared_.grad_scaler = std::make_shared<precision::GradScaler>(settings);
}

void TrainingPrecision::set_grad_scaler(const GradScalerSettings& settings) {
  require_nothing_prepared("the gradient scaler");
  make_grad_scaler(settings);
}

void TrainingPrecision::follow_loss_scale(const std::optional<DeepspeedLossScale>& given) {
  if (prepared_.grad_scaler == nullptr || !prepared_.models.empty()) return;
  if (!given) {
    if (std::exchange(follows_file_, false)) prepared_.grad_scaler->follow(GradScalerSettings(), {});
    return;
  }
  const DeepspeedLossScale& scale = *given;
  if (own_grad_scaler_) {
    log(LogLevel::kWarning,
        "fp16 of DeepSpeed's file and accel_set_grad_scaler() both say how losses are scaled; the call counts");
    return;
  }
  GradScalerSettings settings;
  const bool is_constant = scale.loss_scale > 0;
  settings.init_scale.set(is_constant ? scale.loss_scale : std::ldexp(1.0, static_cast<int>(scale.initial_scale_power)),
                          is_constant ? "fp16.loss_scale" : "fp16.initial_scale_power");
  settings.growth_interval.set(scale.loss_scale_window, "fp16.loss_scale_window");
  follows_file_ = true;
  prepared_.grad_scaler->follow(settings,
                                {is_constant, scale.hysteresis, scale.consecutive_hysteresis, scale.min_loss_scale});
}

void TrainingPrecision::set_autocast(const AutocastSettings& settings) {
  require_nothing_prepared("autocast");
  autocast_ = settings;
}

void TrainingPrecision::set_fp8(const Fp8Settings& settings) {
  require_nothing_prepared("the recipe of fp8");
  precision::make_fp8_recipe(settings);  // or an error
  fp8_ = std::make_shared<const Fp8Settings>(settings);
}

void TrainingPrecision::set_fp8_filter(Fp8Filter filter) {
  require_nothing_prepared("the filter of fp8");
  fp8_filter_ = std::move(filter);
}

std::shared_ptr<const precision::Fp8Recipe> TrainingPrecision::fp8() const {
  if (state_.settings().mixed_precision != Precision::kFp8) return nullptr;
  Fp8Settings settings = fp8_ == nullptr ? Fp8Settings() : *fp8_;
  resolve_settings(settings);
  auto recipe = std::make_shared<precision::Fp8Recipe>(precision::make_fp8_recipe(settings));
  recipe->filter = fp8_filter_;
  return recipe;
}

}  // namespace accel::accelerator
