// SPDX-License-Identifier: Apache-2.0
// Section 10: backward, micro-batches, and gradients before the step.
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/join_uneven_inputs.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/prepare.hpp"
#include "capi/generated/options/tensor.hpp"
#include "capi/training/backward_options.hpp"
#include "capi/training/precision.hpp"
#include "config/generated/settings/state/state.hpp"
#include "precision/autocast.hpp"

namespace accel::capi {
namespace {

std::vector<nn::ModulePtr> read_modules(accel_module_t* const* modules, size_t count) {
  check_array(modules, count, "modules");
  std::vector<nn::ModulePtr> result;
  result.reserve(count);
  for (size_t i = 0; i < count; i++) result.push_back(check(modules[i], "modules[i]").module);
  return result;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_backward(accel_state_t* state, accel_tensor_t* loss,
                                             const accel_backward_options_t* options) {
  return guarded(__func__, [&] {
    const at::Tensor& tensor = check(loss, "loss").tensor;
    accelerator_of(state)->backward().run(tensor, read_backward_options(options));
  });
}

ACCEL_FUNCTION accel_status_t accel_lomo_backward(accel_state_t* state, accel_tensor_t* loss, double lr) {
  return guarded(__func__,
                 [&] { accelerator_of(state)->backward().run_lomo(check(loss, "loss").tensor, optional_number(lr)); });
}

ACCEL_FUNCTION accel_status_t accel_backward_sum(accel_state_t* state, accel_tensor_t* loss_sum, int64_t count,
                                                 const accel_backward_options_t* options) {
  return guarded(__func__, [&] {
    const at::Tensor& tensor = check(loss_sum, "loss_sum").tensor;
    accelerator_of(state)->backward().run_sum(tensor, count, read_backward_options(options));
  });
}

ACCEL_FUNCTION accel_status_t accel_accumulate_begin(accel_state_t* state, accel_module_t* const* modules,
                                                     size_t n_modules, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    return open_scope<accelerator::MicroBatch>(accelerator_of(state), read_modules(modules, n_modules));
  });
}

ACCEL_FUNCTION accel_status_t accel_no_sync_begin(accel_state_t* state, accel_module_t* module, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    accelerator_of(state);
    return open_scope<accelerator::NoSyncGuard>(read_modules(&module, 1));
  });
}

ACCEL_FUNCTION accel_status_t accel_trigger_sync_in_backward_begin(accel_state_t* state, accel_module_t* module,
                                                                   accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    accelerator_of(state);
    return open_scope<accelerator::TriggerSyncGuard>(check(module, "module").module);
  });
}

ACCEL_FUNCTION accel_status_t accel_join_uneven_inputs_begin(accel_state_t* state, accel_module_t* const* modules,
                                                             size_t n_modules, int32_t even_batches,
                                                             accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const auto& accelerator = accelerator_of(state);
    const auto models = read_modules(modules, n_modules);
    return open_scope<accelerator::JoinedInputs>(accelerator, models, optional_flag(even_batches, "even_batches"));
  });
}

ACCEL_FUNCTION accel_status_t accel_autocast_begin(accel_state_t* state, const accel_autocast_options_t* options,
                                                   accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const accelerator::Accelerator& accelerator = *accelerator_of(state);
    return open_scope<precision::AutocastGuard>(accelerator.state().settings().mixed_precision.value,
                                                accelerator.state().device().type(),
                                                read_autocast_options(options, accelerator.precision().autocast()));
  });
}

ACCEL_FUNCTION accel_status_t accel_unscale_gradients(accel_state_t* state, accel_optimizer_t* optimizer) {
  return guarded(__func__, [&] {
    optim::Optimizer* const one = optimizer == nullptr ? nullptr : check(optimizer, "optimizer").optimizer.get();
    return accelerator_of(state)->clipping().unscale_gradients(one) ? ACCEL_OK : ACCEL_STEP_SKIPPED;
  });
}

ACCEL_FUNCTION accel_status_t accel_clip_grad_norm(accel_state_t* state, const accel_module_t* module, double max_norm,
                                                   double norm_type, double* out_norm) {
  return guarded(__func__, [&] {
    const auto norm =
        accelerator_of(state)->clipping().clip_gradients_by_norm(check(module, "module").module, max_norm, norm_type);
    if (norm && out_norm != nullptr) *out_norm = norm->item<double>();
    return norm ? ACCEL_OK : ACCEL_STEP_SKIPPED;
  });
}

ACCEL_FUNCTION accel_status_t accel_clip_grad_value(accel_state_t* state, const accel_module_t* module,
                                                    double clip_value) {
  return guarded(__func__, [&] {
    const bool clipped =
        accelerator_of(state)->clipping().clip_gradients_by_value(check(module, "module").module, clip_value);
    return clipped ? ACCEL_OK : ACCEL_STEP_SKIPPED;
  });
}

}  // namespace accel::capi
