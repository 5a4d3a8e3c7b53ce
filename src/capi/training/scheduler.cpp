// SPDX-License-Identifier: Apache-2.0
// Section 8: learning-rate schedulers.
#include "optim/schedules/scheduler.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "accel.h"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/scheduler.hpp"
#include "capi/values/value.hpp"
#include "optim/schedules/composed_scheduler.hpp"
#include "optim/schedules/lr_scheduler.hpp"
#include "optim/schedules/plateau_scheduler.hpp"

namespace accel::capi {
namespace {

template <typename MakeSchedule>
accel_status_t create(const char* function, accel_optimizer_t* optimizer, accel_scheduler_t** out,
                      MakeSchedule&& make_schedule) {
  return guarded(function, out, [&] {
    return std::make_shared<optim::LrScheduler>(check(optimizer, "optimizer").optimizer, make_schedule());
  });
}

optim::SchedulerParts read_parts(accel_scheduler_t* const* schedulers, size_t count) {
  check_array(check_pointer(schedulers, "schedulers"), count, "schedulers");
  std::vector<std::shared_ptr<optim::Scheduler>> parts;
  for (size_t i = 0; i < count; i++) parts.push_back(check(schedulers[i], "schedulers[i]").scheduler);
  return optim::scheduler_parts(parts);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_scheduler_lambda(accel_optimizer_t* optimizer, accel_lr_lambda_fn lambda,
                                                     void* user_data, accel_destroy_fn destroy,
                                                     accel_scheduler_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_lr_lambda_fn> factor(lambda, user_data, destroy);
    check_pointer(lambda, "lambda");
    return create("accel_scheduler_lambda", optimizer, out, [&] { return optim::factor_schedule(factor); });
  });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_group_lambda(accel_optimizer_t* optimizer,
                                                           accel_lr_group_lambda_fn lambda, void* user_data,
                                                           accel_destroy_fn destroy, accel_scheduler_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_lr_group_lambda_fn> factor(lambda, user_data, destroy);
    check_pointer(lambda, "lambda");
    return create("accel_scheduler_group_lambda", optimizer, out, [&] { return optim::group_factor_schedule(factor); });
  });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_step_lr(accel_optimizer_t* optimizer, int64_t step_size, double gamma,
                                                      accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::step_schedule(step_size, gamma); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_cosine(accel_optimizer_t* optimizer, int64_t warmup_steps,
                                                     int64_t total_steps, double min_factor, accel_scheduler_t** out) {
  return create(__func__, optimizer, out,
                [&] { return optim::factor_schedule(optim::cosine_factor(warmup_steps, total_steps, min_factor)); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_linear_warmup(accel_optimizer_t* optimizer, int64_t warmup_steps,
                                                            int64_t total_steps, accel_scheduler_t** out) {
  return create(__func__, optimizer, out,
                [&] { return optim::factor_schedule(optim::linear_warmup_factor(warmup_steps, total_steps)); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_cosine_hard_restarts(accel_optimizer_t* optimizer, int64_t warmup_steps,
                                                                   int64_t total_steps, int64_t num_cycles,
                                                                   accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] {
    return optim::factor_schedule(optim::hard_restarts_factor(warmup_steps, total_steps, num_cycles));
  });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_constant_with_warmup(accel_optimizer_t* optimizer, int64_t warmup_steps,
                                                                   accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::factor_schedule(optim::constant_factor(warmup_steps)); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_inverse_sqrt(accel_optimizer_t* optimizer, int64_t warmup_steps,
                                                           int64_t timescale, accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] {
    return optim::factor_schedule(optim::inverse_sqrt_factor(warmup_steps, optional_number(timescale)));
  });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_multi_step(accel_optimizer_t* optimizer, const int64_t* milestones,
                                                         size_t n_milestones, double gamma, accel_scheduler_t** out) {
  return create(__func__, optimizer, out,
                [&] { return optim::multi_step_schedule(read_array(milestones, n_milestones, "milestones"), gamma); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_constant(accel_optimizer_t* optimizer, double factor, int64_t total_iters,
                                                       accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::constant_schedule(factor, total_iters); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_linear(accel_optimizer_t* optimizer, double start_factor,
                                                     double end_factor, int64_t total_iters, accel_scheduler_t** out) {
  return create(__func__, optimizer, out,
                [&] { return optim::linear_schedule(start_factor, end_factor, total_iters); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_exponential(accel_optimizer_t* optimizer, double gamma,
                                                          accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::exponential_schedule(gamma); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_polynomial(accel_optimizer_t* optimizer, int64_t total_iters,
                                                         double power, accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::polynomial_schedule(total_iters, power); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_cosine_annealing(accel_optimizer_t* optimizer, int64_t t_max,
                                                               double eta_min, accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::cosine_annealing_schedule(t_max, eta_min); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_cosine_warm_restarts(accel_optimizer_t* optimizer, int64_t t_0,
                                                                   int64_t t_mult, double eta_min,
                                                                   accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::cosine_warm_restarts_schedule(t_0, t_mult, eta_min); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_one_cycle(accel_optimizer_t* optimizer, double max_lr,
                                                        int64_t total_steps, const accel_one_cycle_options_t* options,
                                                        accel_scheduler_t** out) {
  return create(__func__, optimizer, out,
                [&] { return optim::one_cycle_schedule(max_lr, total_steps, read_settings(options, "options")); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_cyclic(accel_optimizer_t* optimizer, double base_lr, double max_lr,
                                                     const accel_cyclic_options_t* options, accel_scheduler_t** out) {
  return create(__func__, optimizer, out,
                [&] { return optim::cyclic_schedule(base_lr, max_lr, read_settings(options, "options")); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_plateau(accel_optimizer_t* optimizer,
                                                      const accel_plateau_options_t* options, accel_scheduler_t** out) {
  return guarded(__func__, out, [&] {
    const auto& engine = check(optimizer, "optimizer").optimizer;
    const PlateauSettings settings = read_settings(options, "options");
    return std::make_shared<optim::PlateauScheduler>(engine, settings);
  });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_chained(accel_scheduler_t* const* schedulers, size_t n_schedulers,
                                                      accel_scheduler_t** out) {
  return guarded(__func__, out, [&] {
    optim::SchedulerParts parts = read_parts(schedulers, n_schedulers);
    return std::make_shared<optim::ChainedScheduler>(std::move(parts));
  });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_sequential(accel_scheduler_t* const* schedulers, size_t n_schedulers,
                                                         const int64_t* milestones, size_t n_milestones,
                                                         accel_scheduler_t** out) {
  return guarded(__func__, out, [&] {
    optim::SchedulerParts parts = read_parts(schedulers, n_schedulers);
    std::vector<int64_t> steps = read_array(milestones, n_milestones, "milestones");
    return std::make_shared<optim::SequentialScheduler>(std::move(parts), std::move(steps));
  });
}

ACCEL_FUNCTION accel_scheduler_t* accel_scheduler_retain(accel_scheduler_t* scheduler) {
  return retain_handle(__func__, scheduler, "scheduler");
}

ACCEL_FUNCTION void accel_scheduler_release(accel_scheduler_t* scheduler) { release_handle(scheduler); }

ACCEL_FUNCTION accel_status_t accel_scheduler_step(accel_scheduler_t* scheduler) {
  return guarded(__func__, [&] { check(scheduler, "scheduler").scheduler->step(); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_step_metric(accel_scheduler_t* scheduler, double metric) {
  return guarded(__func__, [&] { check(scheduler, "scheduler").scheduler->step_metric(metric); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_last_lr(const accel_scheduler_t* scheduler, size_t group, double* out) {
  return guarded(__func__, out, [&] { return check(scheduler, "scheduler").scheduler->last_lr(group); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_curve(accel_scheduler_t* scheduler, int64_t n_steps,
                                                    accel_tensor_t** out) {
  return guarded(__func__, out,
                 [&] { return optim::learning_rate_curve(*check(scheduler, "scheduler").scheduler, n_steps); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_state_dict(const accel_scheduler_t* scheduler, accel_value_t* out) {
  return guarded(__func__,
                 [&] { give(check_pointer(out, "out"), check(scheduler, "scheduler").scheduler->state_dict()); });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_load_state_dict(accel_scheduler_t* scheduler,
                                                              const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    optim::Scheduler& engine = *check(scheduler, "scheduler").scheduler;
    engine.load_state_dict(to_ivalue(*check_pointer(state_dict, "state_dict"), "state_dict"));
  });
}

}  // namespace accel::capi
