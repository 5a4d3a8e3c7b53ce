// SPDX-License-Identifier: Apache-2.0
// Section 10: parameters whose gradients the application computes itself.
#include "accelerator/parameters/prepared_parameters.hpp"

#include <limits>
#include <memory>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/parameters/step_parameters.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/parameters.hpp"
#include "capi/generated/options/prepare.hpp"
#include "capi/values/named_tensors.hpp"

namespace accel::capi {
namespace {

accelerator::PreparedParameters& parameters_of(const accel_parameters_t* parameters) {
  return *check(parameters, "parameters").parameters;
}

ParametersSettings parameters_settings(const accel_parameters_options_t* options) {
  ParametersSettings settings = read_settings(options, "options");
  settings.fsdp = given_settings(given_options(options, "options").fsdp, "options.fsdp");
  return settings;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_parameters_create(accel_state_t* state, accel_module_t* module,
                                                      const accel_parameters_options_t* options,
                                                      accel_parameters_t** out) {
  return guarded(__func__, out, [&] {
    const nn::ModulePtr& model = check(module, "module").module;
    const ParametersSettings settings = parameters_settings(options);
    const auto& accelerator = accelerator_of(state);
    return std::make_unique<accel_parameters>(
        accelerator->preparation().prepare_parameters(model, settings.bucket_cap_mb, settings.fsdp), accelerator);
  });
}

ACCEL_FUNCTION accel_status_t accel_parameters_register(accel_state_t* state, const accel_value_t* tensors,
                                                        const accel_parameters_options_t* options,
                                                        accel_parameters_t** out) {
  return guarded(__func__, out, [&] {
    const auto& accelerator = accelerator_of(state);
    check_pointer(tensors, "tensors");
    const ParametersSettings settings = parameters_settings(options);
    const auto read = [&] { return read_named_tensors(*tensors, "tensors"); };
    return std::make_unique<accel_parameters>(
        accelerator->preparation().register_parameters(read, settings.bucket_cap_mb, settings.fsdp), accelerator);
  });
}

ACCEL_FUNCTION accel_status_t accel_parameters_module(const accel_parameters_t* parameters, accel_module_t** out) {
  return guarded(__func__, out, [&] { return parameters_of(parameters).model()->module(); });
}

ACCEL_FUNCTION accel_status_t accel_parameters_step(accel_parameters_t* parameters, accel_optimizer_t* optimizer,
                                                    const accel_value_t* gradients,
                                                    const accel_parameters_step_options_t* options, double* out_norm) {
  return guarded(__func__, [&] {
    accelerator::PreparedParameters& engine = parameters_of(parameters);
    const optim::Optimizer& updating = *check(optimizer, "optimizer").optimizer;
    const nn::NamedTensors given = read_named_tensors(*check_pointer(gradients, "gradients"), "gradients");
    const ParametersStepSettings settings = read_settings(options, "options");
    const auto accelerator = parameters->accelerator.lock();
    require(accelerator != nullptr, Status::kInvalidState,
            "the state of the parameters is released; expected steps before that");
    const auto norm =
        accelerator::step_parameters(*accelerator, engine, updating, given, settings, out_norm != nullptr);
    if (out_norm != nullptr) *out_norm = norm.value_or(std::numeric_limits<double>::quiet_NaN());
  });
}

ACCEL_FUNCTION accel_status_t accel_parameters_gradient(const accel_parameters_t* parameters, size_t index,
                                                        accel_tensor_t** out) {
  return guarded(__func__, out, [&] { return parameters_of(parameters).gradients().gradient(index); });
}

ACCEL_FUNCTION accel_status_t accel_parameters_grad_ready(accel_parameters_t* parameters, size_t index,
                                                          const accel_tensor_t* gradient) {
  return guarded(__func__, [&] {
    accelerator::PreparedParameters& engine = parameters_of(parameters);
    engine.grad_ready(index, gradient == nullptr ? at::Tensor() : check(gradient, "gradient").tensor);
  });
}

ACCEL_FUNCTION accel_status_t accel_parameters_synchronize(accel_parameters_t* parameters) {
  return guarded(__func__, [&] { parameters_of(parameters).synchronize(); });
}

ACCEL_FUNCTION accel_status_t accel_parameters_synchronize_async(accel_parameters_t* parameters,
                                                                 accel_work_t** out_work) {
  return guarded(__func__, [&] {
    accelerator::PreparedParameters& engine = parameters_of(parameters);
    check_pointer(out_work, "out_work");
    *out_work = std::make_unique<accel_work>(engine.start_synchronize(), engine.communicator()).release();
  });
}

ACCEL_FUNCTION accel_status_t accel_parameters_unshard(accel_parameters_t* parameters, const char* module,
                                                       int32_t wait) {
  return guarded(__func__, [&] {
    const accelerator::PreparedParameters& engine = parameters_of(parameters);
    engine.gradients().unshard(check_pointer(module, "module"), read_flag(wait, "wait"));
  });
}

ACCEL_FUNCTION accel_status_t accel_parameters_reshard(accel_parameters_t* parameters, const char* module) {
  return guarded(__func__, [&] { parameters_of(parameters).gradients().reshard(check_pointer(module, "module")); });
}

ACCEL_FUNCTION accel_parameters_t* accel_parameters_retain(accel_parameters_t* parameters) {
  return retain_handle(__func__, parameters, "parameters");
}

ACCEL_FUNCTION void accel_parameters_release(accel_parameters_t* parameters) { release_handle(parameters); }

}  // namespace accel::capi
