// Section 10: the options of autocast and of the gradient scaler.
#include "capi/precision.hpp"

#include "accelerator/accelerator.hpp"
#include "capi/buffer.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"

namespace accel::capi {
namespace {

constexpr accel_grad_scaler_options_t kUnsetGradScalerOptions = ACCEL_GRAD_SCALER_OPTIONS_INIT;
constexpr accel_autocast_options_t kUnsetAutocastOptions = ACCEL_AUTOCAST_OPTIONS_INIT;

precision::GradScalerSettings read_grad_scaler_options(const accel_grad_scaler_options_t* given) {
  const accel_grad_scaler_options_t options = read_options(given, kUnsetGradScalerOptions, "options");
  precision::GradScalerSettings settings;
  settings.init_scale = option_number(options.init_scale).value_or(settings.init_scale);
  settings.growth_factor = option_number(options.growth_factor).value_or(settings.growth_factor);
  settings.backoff_factor = option_number(options.backoff_factor).value_or(settings.backoff_factor);
  settings.growth_interval = option_integer(options.growth_interval).value_or(settings.growth_interval);
  settings.enabled = option_flag(options.enabled, "options.enabled");
  return settings;
}

}  // namespace

precision::AutocastSettings read_autocast_options(const accel_autocast_options_t* given,
                                                  const precision::AutocastSettings& otherwise) {
  const accel_autocast_options_t options = read_options(given, kUnsetAutocastOptions, "options");
  precision::AutocastSettings settings;
  settings.enabled = option_flag(options.enabled, "options.enabled").value_or(otherwise.enabled);
  settings.cache_enabled =
      option_flag(options.cache_enabled, "options.cache_enabled").value_or(otherwise.cache_enabled);
  return settings;
}

ACCEL_FUNCTION void accel_grad_scaler_options_init(accel_grad_scaler_options_t* options) {
  if (options != nullptr) *options = kUnsetGradScalerOptions;
}

ACCEL_FUNCTION void accel_autocast_options_init(accel_autocast_options_t* options) {
  if (options != nullptr) *options = kUnsetAutocastOptions;
}

ACCEL_FUNCTION accel_status_t accel_set_grad_scaler(accel_state_t* state, const accel_grad_scaler_options_t* options) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *check(state, "state").accelerator;
    accelerator.set_grad_scaler(read_grad_scaler_options(options));
    return ACCEL_OK;
  });
}

ACCEL_FUNCTION double accel_loss_scale(const accel_state_t* state) {
  return guarded_value<double>(__func__, -1, [&] {
    const auto& scaler = check(state, "state").accelerator->grad_scaler();
    return scaler == nullptr ? 1.0 : scaler->scale();
  });
}

ACCEL_FUNCTION accel_status_t accel_set_autocast(accel_state_t* state, const accel_autocast_options_t* options) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *check(state, "state").accelerator;
    accelerator.set_autocast(read_autocast_options(options, {}));
    return ACCEL_OK;
  });
}

}  // namespace accel::capi
