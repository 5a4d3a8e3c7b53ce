// Section 8: optimizers.
#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "accel.h"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/value.hpp"
#include "nn/module.hpp"
#include "optim/adam.hpp"
#include "optim/sgd.hpp"

using namespace accel;
using namespace accel::capi;

namespace {

constexpr double kAdamWDecay = 0.01;

optim::AdamSettings adam_settings(const accel_adam_options_t* given, double weight_decay) {
  const accel_adam_options_t options = read_options<accel_adam_options_t>(given, ACCEL_ADAM_OPTIONS_INIT, "options");
  optim::AdamSettings settings;
  settings.lr = option_number(options.lr).value_or(settings.lr);
  settings.weight_decay = option_number(options.weight_decay).value_or(weight_decay);
  settings.beta1 = option_number(options.beta1).value_or(settings.beta1);
  settings.beta2 = option_number(options.beta2).value_or(settings.beta2);
  settings.eps = option_number(options.eps).value_or(settings.eps);
  settings.amsgrad = option_flag(options.amsgrad, "amsgrad").value_or(settings.amsgrad);
  settings.maximize = option_flag(options.maximize, "maximize").value_or(settings.maximize);
  return settings;
}

optim::SgdSettings sgd_settings(const accel_sgd_options_t* given) {
  const accel_sgd_options_t options = read_options<accel_sgd_options_t>(given, ACCEL_SGD_OPTIONS_INIT, "options");
  optim::SgdSettings settings;
  settings.lr = option_number(options.lr).value_or(settings.lr);
  settings.weight_decay = option_number(options.weight_decay).value_or(settings.weight_decay);
  settings.momentum = option_number(options.momentum).value_or(settings.momentum);
  settings.dampening = option_number(options.dampening).value_or(settings.dampening);
  settings.nesterov = option_flag(options.nesterov, "nesterov").value_or(settings.nesterov);
  settings.maximize = option_flag(options.maximize, "maximize").value_or(settings.maximize);
  return settings;
}

// `make` reads the options; the module's trainable parameters become the first group.
template <typename Make>
accel_status_t create(const char* function, const accel_module_t* module, accel_optimizer_t** out, Make&& make) {
  return guarded(function, [&] {
    const nn::Module* const model = module == nullptr ? nullptr : check(module, "module").module.get();
    check_pointer(out, "out");
    std::shared_ptr<optim::Optimizer> optimizer = make();
    if (model != nullptr) {
      std::vector<at::Tensor> trainable;
      for (const auto& parameter : model->parameters())
        if (parameter.requires_grad()) trainable.push_back(parameter);
      optimizer->add_group(std::move(trainable), std::nullopt, std::nullopt);
    }
    *out = std::make_unique<accel_optimizer>(std::move(optimizer)).release();
    return ACCEL_OK;
  });
}

}  // namespace

void accel_adam_options_init(accel_adam_options_t* options) {
  if (options != nullptr) *options = ACCEL_ADAM_OPTIONS_INIT;
}

void accel_sgd_options_init(accel_sgd_options_t* options) {
  if (options != nullptr) *options = ACCEL_SGD_OPTIONS_INIT;
}

accel_status_t accel_optimizer_adamw(const accel_module_t* module, const accel_adam_options_t* options,
                                     accel_optimizer_t** out) {
  return create(__func__, module, out, [&] {
    return std::make_shared<optim::Adam>(optim::WeightDecay::kDecoupled, adam_settings(options, kAdamWDecay));
  });
}

accel_status_t accel_optimizer_adam(const accel_module_t* module, const accel_adam_options_t* options,
                                    accel_optimizer_t** out) {
  return create(__func__, module, out, [&] {
    return std::make_shared<optim::Adam>(optim::WeightDecay::kInGradient, adam_settings(options, 0));
  });
}

accel_status_t accel_optimizer_sgd(const accel_module_t* module, const accel_sgd_options_t* options,
                                   accel_optimizer_t** out) {
  return create(__func__, module, out, [&] { return std::make_shared<optim::Sgd>(sgd_settings(options)); });
}

accel_optimizer_t* accel_optimizer_retain(accel_optimizer_t* optimizer) {
  return retain_handle(__func__, optimizer, "optimizer");
}

void accel_optimizer_release(accel_optimizer_t* optimizer) { release_handle(optimizer); }

accel_status_t accel_optimizer_add_group(accel_optimizer_t* optimizer, accel_tensor_t* const* parameters,
                                         size_t n_parameters, double lr, double weight_decay) {
  return guarded(__func__, [&] {
    optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    check_pointer(parameters, "parameters");
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < n_parameters; ++i) tensors.push_back(check(parameters[i], "parameters[i]").tensor);
    engine.add_group(std::move(tensors), option_number(lr), option_number(weight_decay));
    return ACCEL_OK;
  });
}

accel_status_t accel_optimizer_step(accel_optimizer_t* optimizer) {
  return guarded(__func__,
                 [&] { return check(optimizer, "optimizer").optimizer->step() ? ACCEL_OK : ACCEL_STEP_SKIPPED; });
}

accel_status_t accel_optimizer_zero_grad(accel_optimizer_t* optimizer) {
  return guarded(__func__, [&] {
    check(optimizer, "optimizer").optimizer->zero_grad();
    return ACCEL_OK;
  });
}

int32_t accel_optimizer_step_was_skipped(const accel_optimizer_t* optimizer) {
  return guarded_value<int32_t>(__func__, -1,
                                [&] { return check(optimizer, "optimizer").optimizer->step_was_skipped() ? 1 : 0; });
}

int64_t accel_optimizer_num_groups(const accel_optimizer_t* optimizer) {
  return guarded_value<int64_t>(
      __func__, -1, [&] { return static_cast<int64_t>(check(optimizer, "optimizer").optimizer->groups().size()); });
}

accel_status_t accel_optimizer_lr(const accel_optimizer_t* optimizer, size_t group, double* out) {
  return guarded(__func__, [&] {
    const optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    check_pointer(out, "out");
    *out = engine.lr(group);
    return ACCEL_OK;
  });
}

accel_status_t accel_optimizer_set_lr(accel_optimizer_t* optimizer, size_t group, double lr) {
  return guarded(__func__, [&] {
    check(optimizer, "optimizer").optimizer->set_lr(group, lr);
    return ACCEL_OK;
  });
}

accel_status_t accel_optimizer_state_dict(const accel_optimizer_t* optimizer, accel_value_t* out) {
  return guarded(__func__, [&] {
    const optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    give(check_pointer(out, "out"), engine.state_dict());
    return ACCEL_OK;
  });
}

accel_status_t accel_optimizer_load_state_dict(accel_optimizer_t* optimizer, const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    engine.load_state_dict(to_ivalue(*check_pointer(state_dict, "state_dict"), "state_dict"));
    return ACCEL_OK;
  });
}
