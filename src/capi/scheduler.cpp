// Section 8: schedulers of learning rates.
#include "optim/scheduler.hpp"

#include <memory>

#include "accel.h"
#include "capi/callback.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/value.hpp"

using namespace accel;
using namespace accel::capi;

namespace {

template <typename MakeFactor>
accel_status_t create(const char* function, accel_optimizer_t* optimizer, accel_scheduler_t** out,
                      MakeFactor&& make_factor) {
  return guarded(function, [&] {
    const auto& engine = check(optimizer, "optimizer").optimizer;
    check_pointer(out, "out");
    *out = std::make_unique<accel_scheduler>(std::make_shared<optim::LambdaScheduler>(engine, make_factor())).release();
    return ACCEL_OK;
  });
}

}  // namespace

accel_status_t accel_scheduler_lambda(accel_optimizer_t* optimizer, accel_lr_lambda_fn lambda, void* user_data,
                                      accel_destroy_fn destroy, accel_scheduler_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_lr_lambda_fn> factor(lambda, user_data, destroy);
    check_pointer(lambda, "lambda");
    return create("accel_scheduler_lambda", optimizer, out, [&] { return optim::LearningRateFactor(factor); });
  });
}

accel_status_t accel_scheduler_step_lr(accel_optimizer_t* optimizer, int64_t step_size, double gamma,
                                       accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::step_factor(step_size, gamma); });
}

accel_status_t accel_scheduler_cosine(accel_optimizer_t* optimizer, int64_t warmup_steps, int64_t total_steps,
                                      double min_factor, accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::cosine_factor(warmup_steps, total_steps, min_factor); });
}

accel_status_t accel_scheduler_linear_warmup(accel_optimizer_t* optimizer, int64_t warmup_steps, int64_t total_steps,
                                             accel_scheduler_t** out) {
  return create(__func__, optimizer, out, [&] { return optim::linear_warmup_factor(warmup_steps, total_steps); });
}

accel_scheduler_t* accel_scheduler_retain(accel_scheduler_t* scheduler) {
  return retain_handle(__func__, scheduler, "scheduler");
}

void accel_scheduler_release(accel_scheduler_t* scheduler) { release_handle(scheduler); }

accel_status_t accel_scheduler_step(accel_scheduler_t* scheduler) {
  return guarded(__func__, [&] {
    check(scheduler, "scheduler").scheduler->step();
    return ACCEL_OK;
  });
}

accel_status_t accel_scheduler_last_lr(const accel_scheduler_t* scheduler, size_t group, double* out) {
  return guarded(__func__, [&] {
    const optim::Scheduler& engine = *check(scheduler, "scheduler").scheduler;
    check_pointer(out, "out");
    *out = engine.last_lr(group);
    return ACCEL_OK;
  });
}

accel_status_t accel_scheduler_state_dict(const accel_scheduler_t* scheduler, accel_value_t* out) {
  return guarded(__func__, [&] {
    const optim::Scheduler& engine = *check(scheduler, "scheduler").scheduler;
    give(check_pointer(out, "out"), engine.state_dict());
    return ACCEL_OK;
  });
}

accel_status_t accel_scheduler_load_state_dict(accel_scheduler_t* scheduler, const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    optim::Scheduler& engine = *check(scheduler, "scheduler").scheduler;
    engine.load_state_dict(to_ivalue(*check_pointer(state_dict, "state_dict"), "state_dict"));
    return ACCEL_OK;
  });
}
