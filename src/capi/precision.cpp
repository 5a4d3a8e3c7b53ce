// Section 10: the options of autocast, of the gradient scaler and of fp8 recipes.
#include "capi/precision.hpp"

#include "accelerator/accelerator.hpp"
#include "capi/buffer.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "config/fp8_recipe.hpp"

namespace accel::capi {
namespace {

constexpr accel_grad_scaler_options_t kUnsetGradScalerOptions = ACCEL_GRAD_SCALER_OPTIONS_INIT;
constexpr accel_autocast_options_t kUnsetAutocastOptions = ACCEL_AUTOCAST_OPTIONS_INIT;
constexpr accel_fp8_recipe_options_t kUnsetFp8RecipeOptions = ACCEL_FP8_RECIPE_OPTIONS_INIT;

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

std::optional<std::string> option_text(const char* value) {
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Fp8RecipeOptions read_fp8_recipe_options(const accel_fp8_recipe_options_t* given) {
  const accel_fp8_recipe_options_t options = read_options(given, kUnsetFp8RecipeOptions, "options");
  Fp8RecipeOptions result;
  result.backend = option_text(options.backend);
  result.fp8_format = option_text(options.fp8_format);
  result.amax_compute_algo = option_text(options.amax_compute_algo);
  result.opt_level = option_text(options.opt_level);
  result.margin = option_integer(options.margin);
  result.interval = option_integer(options.interval);
  result.amax_history_len = option_integer(options.amax_history_len);
  result.use_autocast_during_eval = option_flag(options.use_autocast_during_eval, "options.use_autocast_during_eval");
  result.override_fprop = option_flag(options.override_fprop, "options.override_fprop");
  result.override_dgrad = option_flag(options.override_dgrad, "options.override_dgrad");
  result.override_wgrad = option_flag(options.override_wgrad, "options.override_wgrad");
  result.use_mxfp8_block_scaling = option_flag(options.use_mxfp8_block_scaling, "options.use_mxfp8_block_scaling");
  result.pad_inner_dim = option_flag(options.pad_inner_dim, "options.pad_inner_dim");
  result.enable_fsdp_float8_all_gather =
      option_flag(options.enable_fsdp_float8_all_gather, "options.enable_fsdp_float8_all_gather");
  return result;
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

ACCEL_FUNCTION void accel_fp8_recipe_options_init(accel_fp8_recipe_options_t* options) {
  if (options != nullptr) *options = kUnsetFp8RecipeOptions;
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

ACCEL_FUNCTION accel_status_t accel_fp8_recipe_describe(const accel_fp8_recipe_options_t* options,
                                                        accel_buffer_t* out) {
  return guarded(__func__, [&] {
    const std::string recipe = describe(resolve_fp8_recipe(read_fp8_recipe_options(options)));
    check_pointer(out, "out");
    *out = new_buffer(recipe);
    return ACCEL_OK;
  });
}

}  // namespace accel::capi
