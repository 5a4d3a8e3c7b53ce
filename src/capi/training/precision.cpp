// SPDX-License-Identifier: Apache-2.0
// Section 10: the options of autocast, of the gradient scaler and of fp8.
#include "capi/training/precision.hpp"

#include "accelerator/accelerator.hpp"
#include "accelerator/prepared_model.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/fp8.hpp"
#include "capi/generated/options/prepare.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/tensor_handle.hpp"
#include "capi/values/value.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {

AutocastSettings read_autocast_options(const accel_autocast_options_t* given, const AutocastSettings& otherwise) {
  AutocastSettings settings = given_settings(given, "options");
  AutocastSettings::for_each(
      [](const OptionField&, auto& setting, const auto& other) {
        if (setting.is_default()) setting = other;
      },
      settings, otherwise);
  resolve_settings(settings);
  return settings;
}

ACCEL_FUNCTION accel_status_t accel_set_grad_scaler(accel_state_t* state, const accel_grad_scaler_options_t* options) {
  return guarded(__func__, [&] {
    check(state, "state").accelerator->precision().set_grad_scaler(read_settings(options, "options"));
  });
}

ACCEL_FUNCTION double accel_loss_scale(const accel_state_t* state) {
  return guarded_value<double>(__func__, -1, [&] {
    const auto& scaler = check(state, "state").accelerator->prepared().grad_scaler;
    return scaler == nullptr ? 1.0 : scaler->scale();
  });
}

ACCEL_FUNCTION accel_status_t accel_grad_scaler_state(const accel_state_t* state, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const auto& scaler = check(state, "state").accelerator->prepared().grad_scaler;
    return from_ivalue(scaler == nullptr ? c10::IValue(tree::new_map()) : scaler->state_dict());
  });
}

ACCEL_FUNCTION accel_status_t accel_load_grad_scaler_state(accel_state_t* state, const accel_value_t* scaler_state) {
  return guarded(__func__, [&] {
    const auto& scaler = check(state, "state").accelerator->prepared().grad_scaler;
    const c10::IValue given = to_ivalue(*check_pointer(scaler_state, "scaler_state"), "scaler_state");
    require(scaler != nullptr, Status::kInvalidState,
            "losses are not scaled; expected mixed_precision fp16, or accel_set_grad_scaler() with enabled = 1");
    scaler->load_state_dict(given);
  });
}

ACCEL_FUNCTION accel_status_t accel_set_autocast(accel_state_t* state, const accel_autocast_options_t* options) {
  return guarded(__func__, [&] {
    check(state, "state").accelerator->precision().set_autocast(read_autocast_options(options, {}));
  });
}

ACCEL_FUNCTION accel_status_t accel_set_fp8(accel_state_t* state, const accel_fp8_options_t* options) {
  return guarded(__func__,
                 [&] { check(state, "state").accelerator->precision().set_fp8(read_settings(options, "options")); });
}

ACCEL_FUNCTION accel_status_t accel_set_fp8_filter(accel_state_t* state, accel_fp8_filter_fn filter, void* user_data,
                                                   accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_fp8_filter_fn> callback(filter, user_data, destroy);
    auto& accelerator = check(state, "state").accelerator;
    check_pointer(filter, "filter");
    accelerator->precision().set_fp8_filter([callback](const std::string& name, const at::Tensor& weight) {
      accel_value_t covered = ACCEL_VALUE_INIT;
      const DisposeValue dispose(covered);
      const TensorHandle handle(new_tensor(weight));
      callback.checked("filter", name.c_str(), handle.get(), &covered);
      const c10::IValue answer = to_ivalue(covered, "the answer of the filter");
      require(answer.isNone() || answer.isBool(), Status::kInvalidArgument, "the filter of fp8 gave ", answer.tagKind(),
              " for ", name, "; expected BOOL or NONE");
      return answer.isNone() || answer.toBool();
    });
  });
}

ACCEL_FUNCTION accel_status_t accel_fp8_describe(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(accelerator::describe_fp8(check(module, "module").module)); });
}

}  // namespace accel::capi
