#include "accelerator/training_precision.hpp"

#include "base/error.hpp"
#include "config/precedence.hpp"

namespace accel::accelerator {

TrainingPrecision::TrainingPrecision(const state::State& state, PreparedObjects& prepared)
    : state_(state), prepared_(prepared) {
  make_grad_scaler({});
}

TrainingPrecision::TrainingPrecision(const state::State& state, PreparedObjects& prepared,
                                     const TrainingPrecision& other)
    : state_(state), prepared_(prepared), autocast_(other.autocast_) {
  make_grad_scaler(other.grad_scaler_settings_);
}

void TrainingPrecision::require_nothing_prepared(const char* what) const {
  require(prepared_.models.empty() && prepared_.optimizers.empty(), Status::kInvalidState, what,
          " cannot change after ", prepared_.models.empty() ? "an optimizer" : "a model",
          " was prepared; set it before, or after accel_free_memory()");
}

void TrainingPrecision::make_grad_scaler(const GradScalerSettings& settings) {
  check_settings(settings);
  grad_scaler_settings_ = settings;
  prepared_.grad_scaler.reset();
  if (settings.enabled.value_or(state_.settings().mixed_precision == Precision::kFp16))
    prepared_.grad_scaler = std::make_shared<precision::GradScaler>(settings);
}

void TrainingPrecision::set_grad_scaler(const GradScalerSettings& settings) {
  require_nothing_prepared("the gradient scaler");
  make_grad_scaler(settings);
}

void TrainingPrecision::set_autocast(const AutocastSettings& settings) {
  require_nothing_prepared("autocast");
  autocast_ = settings;
}

}  // namespace accel::accelerator
