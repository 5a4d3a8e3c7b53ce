// SPDX-License-Identifier: Apache-2.0
// Section 8: optimizers.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/prepared_model.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/optimizer_options.hpp"
#include "capi/values/tensor_handle.hpp"
#include "capi/values/tensor_list.hpp"
#include "capi/values/value.hpp"
#include "nn/module.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

// Names and values of a struct that was checked; unset ones have none.
template <typename Options>
optim::GivenSettings named_settings(const Options* given) {
  const Options options = read_options(given, "options");
  optim::GivenSettings settings;
  for (const OptionField& field : OptionsStruct<Options>::table())
    if (field.kind != OptionKind::kReserved) settings.emplace_back(field.name, option_value(field, &options));
  return settings;
}

// A rank of a model in stages may have no parameters, and makes the steps of the others.
void require_parameters(size_t number, const nn::ModulePtr& module) {
  require(number > 0 || (module != nullptr && accelerator::parallel_model_of(module)->pipeline() != nullptr),
          Status::kInvalidArgument, "a parameter group of 0 parameters was given; expected at least one");
}

// The optimizer of a rule; the module's trainable parameters become its first group.
std::unique_ptr<accel_optimizer> with_parameters(const accel_module_t* module,
                                                 const std::shared_ptr<optim::Optimizer>& optimizer) {
  if (module != nullptr) {
    std::vector<at::Tensor> trainable;
    for (const auto& parameter : check(module, "module").module->parameters())
      if (parameter.requires_grad()) trainable.push_back(parameter);
    require_parameters(trainable.size(), module->module);
    optimizer->add_group(std::move(trainable), std::nullopt, std::nullopt);
  }
  return std::make_unique<accel_optimizer>(optimizer);
}

template <typename Options, typename... Arguments>
accel_status_t create(const char* function, const accel_module_t* module, const Options* options,
                      accel_optimizer_t** out, optim::RulePtr (*rule)(Arguments...), Arguments... arguments) {
  return guarded(function, out, [&] {
    if (module != nullptr) check(module, "module");
    return with_parameters(module, optim::make_optimizer(rule(arguments...), named_settings(options)));
  });
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_optimizer_adamw(const accel_module_t* module, const accel_adam_options_t* options,
                                                    accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::adam_rule, optim::WeightDecay::kDecoupled);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_adam(const accel_module_t* module, const accel_adam_options_t* options,
                                                   accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::adam_rule, optim::WeightDecay::kInGradient);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_sgd(const accel_module_t* module, const accel_sgd_options_t* options,
                                                  accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::sgd_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_adagrad(const accel_module_t* module,
                                                      const accel_adagrad_options_t* options, accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::adagrad_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_rmsprop(const accel_module_t* module,
                                                      const accel_rmsprop_options_t* options, accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::rmsprop_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_adamax(const accel_module_t* module,
                                                     const accel_adamax_options_t* options, accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::adamax_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_nadam(const accel_module_t* module, const accel_nadam_options_t* options,
                                                    accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::nadam_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_radam(const accel_module_t* module, const accel_radam_options_t* options,
                                                    accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::radam_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_lion(const accel_module_t* module, const accel_lion_options_t* options,
                                                   accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::lion_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_lamb(const accel_module_t* module, const accel_lamb_options_t* options,
                                                   accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::lamb_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_adafactor(const accel_module_t* module,
                                                        const accel_adafactor_options_t* options,
                                                        accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::adafactor_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_muon(const accel_module_t* module, const accel_muon_options_t* options,
                                                   accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::muon_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_adamw_8bit(const accel_module_t* module,
                                                         const accel_adam_options_t* options, accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::adamw_8bit_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_lomo(const accel_module_t* module, const accel_lomo_options_t* options,
                                                   accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::lomo_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_adalomo(const accel_module_t* module,
                                                      const accel_adalomo_options_t* options, accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::adalomo_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_schedule_free_sgd(const accel_module_t* module,
                                                                const accel_schedule_free_sgd_options_t* options,
                                                                accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::schedule_free_sgd_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_schedule_free_adamw(const accel_module_t* module,
                                                                  const accel_schedule_free_adamw_options_t* options,
                                                                  accel_optimizer_t** out) {
  return create(__func__, module, options, out, optim::schedule_free_adamw_rule);
}

ACCEL_FUNCTION accel_status_t accel_optimizer_create(const accel_module_t* module, const char* const* state_names,
                                                     size_t n_states, double lr, double weight_decay,
                                                     accel_update_fn update, void* user_data, accel_destroy_fn destroy,
                                                     accel_optimizer_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_update_fn> callback(update, user_data, destroy);  // taken over whatever fails
    check_pointer(update, "update");
    std::vector<std::string> names;
    check_array(state_names, n_states, "state_names");
    for (size_t i = 0; i < n_states; ++i) names.emplace_back(check_pointer(state_names[i], "state_names[i]"));
    const auto run = [callback, names](const optim::CallbackUpdate& given) {
      const TensorHandle parameter(new_tensor(given.parameter));
      const TensorHandle gradient(new_tensor(given.gradient));
      auto map = tree::new_map();
      for (size_t i = 0; i < names.size(); ++i) map.insert(names[i], given.states[i]);
      accel_value_t states = from_ivalue(map);
      const DisposeValue dispose(states);
      callback.checked("update", parameter.get(), gradient.get(), &states, given.step, given.lr, given.weight_decay);
    };
    if (module != nullptr) check(module, "module");
    check_pointer(out, "out");
    const auto optimizer =
        optim::make_optimizer(optim::callback_rule(names, run), {{"lr", lr}, {"weight_decay", weight_decay}});
    *out = with_parameters(module, optimizer).release();
  });
}

ACCEL_FUNCTION accel_optimizer_t* accel_optimizer_retain(accel_optimizer_t* optimizer) {
  return retain_handle(__func__, optimizer, "optimizer");
}

ACCEL_FUNCTION void accel_optimizer_release(accel_optimizer_t* optimizer) { release_handle(optimizer); }

ACCEL_FUNCTION accel_status_t accel_optimizer_add_group(accel_optimizer_t* optimizer, accel_tensor_t* const* parameters,
                                                        size_t n_parameters, double lr, double weight_decay) {
  return guarded(__func__, [&] {
    optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    if (dynamic_cast<optim::ParameterOptimizer*>(&engine) != nullptr) require_parameters(n_parameters, nullptr);
    engine.add_group(read_tensors(parameters, n_parameters, "parameters"), optional_number(lr),
                     optional_number(weight_decay));
  });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_step(accel_optimizer_t* optimizer) {
  return guarded(__func__,
                 [&] { return check(optimizer, "optimizer").optimizer->step() ? ACCEL_OK : ACCEL_STEP_SKIPPED; });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_step_closure(accel_optimizer_t* optimizer, accel_closure_fn closure,
                                                           void* user_data, accel_destroy_fn destroy,
                                                           accel_tensor_t** out_loss) {
  return guarded(__func__, [&] {
    const Callback<accel_closure_fn> callback(closure, user_data, destroy);
    optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    check_pointer(closure, "closure");
    check_pointer(out_loss, "out_loss");
    TensorHandle loss;
    const bool stepped = engine.step_by([&] {
      accel_tensor_t* given = nullptr;
      callback.checked("closure", &given);
      loss.reset(given);
      require(given != nullptr, Status::kTypeMismatch,
              "the callback closure returned ACCEL_OK and did not write out_loss; expected the loss there");
    });
    *out_loss = loss.release();
    return stepped ? ACCEL_OK : ACCEL_STEP_SKIPPED;
  });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_train(accel_optimizer_t* optimizer, int32_t training) {
  return guarded(__func__, [&] { check(optimizer, "optimizer").optimizer->train(read_flag(training, "training")); });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_zero_grad(accel_optimizer_t* optimizer, int32_t set_to_none) {
  return guarded(__func__, [&] { check(optimizer, "optimizer").optimizer->zero_grad(set_to_none != 0); });
}

ACCEL_FUNCTION int32_t accel_optimizer_step_was_skipped(const accel_optimizer_t* optimizer) {
  return guarded_value<int32_t>(__func__, -1,
                                [&] { return check(optimizer, "optimizer").optimizer->step_was_skipped() ? 1 : 0; });
}

ACCEL_FUNCTION int32_t accel_any_optimizer_step_was_skipped(const accel_state_t* state) {
  return guarded_value<int32_t>(__func__, -1, [&] {
    const auto& optimizers = accelerator_of(state)->prepared().optimizers;
    return std::any_of(optimizers.begin(), optimizers.end(), [](const auto& each) { return each->step_was_skipped(); });
  });
}

ACCEL_FUNCTION int64_t accel_optimizer_num_groups(const accel_optimizer_t* optimizer) {
  return guarded_value<int64_t>(
      __func__, -1, [&] { return static_cast<int64_t>(check(optimizer, "optimizer").optimizer->groups().size()); });
}

ACCEL_FUNCTION int64_t accel_optimizer_state_bytes(const accel_optimizer_t* optimizer) {
  return guarded_value<int64_t>(__func__, -1, [&] { return check(optimizer, "optimizer").optimizer->state_bytes(); });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_lr(const accel_optimizer_t* optimizer, size_t group, double* out) {
  return guarded(__func__, out, [&] { return check(optimizer, "optimizer").optimizer->lr(group); });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_set_lr(accel_optimizer_t* optimizer, size_t group, double lr) {
  return guarded(__func__, [&] { check(optimizer, "optimizer").optimizer->set_lr(group, lr); });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_setting(const accel_optimizer_t* optimizer, size_t group,
                                                      const char* name, double* out) {
  return guarded(__func__, out, [&] {
    const optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    check_pointer(name, "name");
    const double value = engine.setting(group, name);
    return std::isnan(value) ? ACCEL_UNSET_DOUBLE : value;
  });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_set_setting(accel_optimizer_t* optimizer, size_t group, const char* name,
                                                          double value) {
  return guarded(__func__, [&] {
    optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    engine.set_setting(group, check_pointer(name, "name"), optional_number(value).value_or(std::nan("")));
  });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_set_update_precision(accel_optimizer_t* optimizer, size_t group,
                                                                   accel_update_precision_t precision) {
  return guarded(__func__, [&] {
    optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    require(precision >= ACCEL_UPDATE_PRECISION_AS_STORED && precision <= ACCEL_UPDATE_PRECISION_STOCHASTIC_ROUNDING,
            Status::kInvalidArgument, "precision is ", precision, "; expected ACCEL_UPDATE_PRECISION_*, 0 to 2");
    engine.set_update_precision(group, static_cast<optim::UpdatePrecision>(precision));
  });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_state_dict(const accel_optimizer_t* optimizer, accel_value_t* out) {
  return guarded(__func__,
                 [&] { give(check_pointer(out, "out"), check(optimizer, "optimizer").optimizer->state_dict()); });
}

ACCEL_FUNCTION accel_status_t accel_optimizer_load_state_dict(accel_optimizer_t* optimizer,
                                                              const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    optim::Optimizer& engine = *check(optimizer, "optimizer").optimizer;
    engine.load_state_dict(to_ivalue(*check_pointer(state_dict, "state_dict"), "state_dict"));
  });
}

}  // namespace accel::capi
