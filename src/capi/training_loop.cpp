// Section 10: backward, micro-batches, and what is done with gradients before the step.
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/uneven_inputs.hpp"
#include "capi/backward_options.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/precision.hpp"
#include "capi/scope.hpp"
#include "optim/clip.hpp"

namespace accel::capi {
namespace {

std::vector<nn::ModulePtr> read_modules(accel_module_t* const* modules, size_t count) {
  if (count > 0) check_pointer(modules, "modules");
  std::vector<nn::ModulePtr> result;
  result.reserve(count);
  for (size_t i = 0; i < count; i++) result.push_back(check(modules[i], "modules[i]").module);
  return result;
}

// Ends when no rank has inputs any more.
class JoinScope final : public ScopeBody {
 public:
  template <typename... Arguments>
  explicit JoinScope(Arguments&&... arguments) : joined_(std::forward<Arguments>(arguments)...) {}
  void finish() override { joined_.finish(); }

 private:
  accelerator::JoinedInputs joined_;
};

// Gradients that are complete and carry no scale.
template <typename Clip>
accel_status_t clip_gradients(const char* function, accel_state_t* state, const accel_module_t* module, Clip&& clip) {
  return guarded(function, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    const nn::Module& model = *check(module, "module").module;
    if (!accelerator.sync_gradients()) return ACCEL_STEP_SKIPPED;
    accelerator.unscale_gradients_of(model);
    clip(model.parameters());
    return ACCEL_OK;
  });
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_backward(accel_state_t* state, accel_tensor_t* loss,
                                             const accel_backward_options_t* options) {
  return guarded(__func__, [&] {
    const auto& accelerator = accelerator_of(state);
    const at::Tensor& tensor = check(loss, "loss").tensor;
    accelerator->backward(tensor, read_backward_options(options));
  });
}

ACCEL_FUNCTION accel_status_t accel_lomo_backward(accel_state_t* state, accel_tensor_t* loss, double lr) {
  return guarded(__func__,
                 [&] { accelerator_of(state)->lomo_backward(check(loss, "loss").tensor, optional_number(lr)); });
}

ACCEL_FUNCTION accel_status_t accel_backward_sum(accel_state_t* state, accel_tensor_t* loss_sum, int64_t count,
                                                 const accel_backward_options_t* options) {
  return guarded(__func__, [&] {
    const auto& accelerator = accelerator_of(state);
    const at::Tensor& tensor = check(loss_sum, "loss_sum").tensor;
    accelerator->backward_sum(tensor, count, read_backward_options(options));
  });
}

ACCEL_FUNCTION accel_status_t accel_accumulate_begin(accel_state_t* state, accel_module_t* const* modules,
                                                     size_t n_modules, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const auto& accelerator = accelerator_of(state);
    std::vector<nn::ModulePtr> models = read_modules(modules, n_modules);
    return open_scope(std::make_unique<GuardScope<accelerator::MicroBatch>>(accelerator, std::move(models)));
  });
}

ACCEL_FUNCTION accel_status_t accel_no_sync_begin(accel_state_t* state, accel_module_t* module, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    accelerator_of(state);
    std::vector<nn::ModulePtr> models{check(module, "module").module};
    return open_scope(std::make_unique<GuardScope<accelerator::NoSyncGuard>>(std::move(models)));
  });
}

ACCEL_FUNCTION accel_status_t accel_trigger_sync_in_backward_begin(accel_state_t* state, accel_module_t* module,
                                                                   accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    accelerator_of(state);
    const nn::ModulePtr& model = check(module, "module").module;
    return open_scope(std::make_unique<GuardScope<accelerator::TriggerSyncGuard>>(model));
  });
}

ACCEL_FUNCTION accel_status_t accel_join_uneven_inputs_begin(accel_state_t* state, accel_module_t* const* modules,
                                                             size_t n_modules, int32_t even_batches,
                                                             accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const auto& accelerator = accelerator_of(state);
    std::vector<nn::ModulePtr> models = read_modules(modules, n_modules);
    const auto even = optional_flag(even_batches, "even_batches");
    return open_scope(std::make_unique<JoinScope>(accelerator, std::move(models), even));
  });
}

ACCEL_FUNCTION accel_status_t accel_autocast_begin(accel_state_t* state, const accel_autocast_options_t* options,
                                                   accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const accelerator::Accelerator& accelerator = *accelerator_of(state);
    const AutocastSettings settings = read_autocast_options(options, accelerator.autocast());
    return open_scope(std::make_unique<GuardScope<precision::AutocastGuard>>(
        accelerator.state().mixed_precision(), accelerator.state().device().type(), settings));
  });
}

ACCEL_FUNCTION accel_status_t accel_unscale_gradients(accel_state_t* state, accel_optimizer_t* optimizer) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    optim::Optimizer* const one = optimizer == nullptr ? nullptr : check(optimizer, "optimizer").optimizer.get();
    if (!accelerator.sync_gradients()) return ACCEL_STEP_SKIPPED;
    accelerator.unscale_gradients(one);
    return ACCEL_OK;
  });
}

ACCEL_FUNCTION accel_status_t accel_clip_grad_norm(accel_state_t* state, const accel_module_t* module, double max_norm,
                                                   double norm_type, double* out_norm) {
  return clip_gradients(__func__, state, module, [&](const std::vector<at::Tensor>& parameters) {
    const at::Tensor norm = optim::clip_gradients_by_norm(parameters, max_norm, norm_type);
    if (out_norm != nullptr) *out_norm = norm.item<double>();
  });
}

ACCEL_FUNCTION accel_status_t accel_clip_grad_value(accel_state_t* state, const accel_module_t* module,
                                                    double clip_value) {
  return clip_gradients(__func__, state, module, [&](const std::vector<at::Tensor>& parameters) {
    optim::clip_gradients_by_value(parameters, clip_value);
  });
}

}  // namespace accel::capi
