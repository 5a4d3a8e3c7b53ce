// SPDX-License-Identifier: Apache-2.0
// Section 8: optimizers and schedulers that the application implements.
#include <cmath>
#include <utility>

#include "accel.h"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/training/state_callbacks.hpp"
#include "optim/application_optimizer.hpp"
#include "optim/schedules/application_scheduler.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_optimizer_from_callbacks(accel_save_state_fn save, accel_load_state_fn load,
                                                             accel_optimizer_step_fn step,
                                                             accel_optimizer_zero_grad_fn zero_grad, void* user_data,
                                                             accel_destroy_fn destroy, accel_optimizer_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_optimizer_step_fn> step_callback(step, user_data, destroy);  // owns user_data from here on
    require(step != nullptr && zero_grad != nullptr && save != nullptr && load != nullptr, Status::kInvalidArgument,
            "step, zero_grad, save or load is NULL; expected four functions");
    check_pointer(out, "out");
    optim::OptimizerFunctions functions;
    functions.step = [step_callback] { return step_callback.checked("step") != ACCEL_STEP_SKIPPED; };
    functions.zero_grad = [callback = step_callback.with(zero_grad)](bool set_to_none) {
      callback.checked("zero_grad", set_to_none ? 1 : 0);
    };
    functions.save = save_function(step_callback.with(save));
    functions.load = load_function(step_callback.with(load));
    *out = std::make_unique<accel_optimizer>(optim::application_optimizer(std::move(functions))).release();
  });
}

ACCEL_FUNCTION accel_status_t accel_scheduler_from_callbacks(accel_optimizer_t* optimizer, accel_save_state_fn save,
                                                             accel_load_state_fn load, accel_scheduler_step_fn step,
                                                             accel_scheduler_count_step_fn count_step, void* user_data,
                                                             accel_destroy_fn destroy, accel_scheduler_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_scheduler_step_fn> step_callback(step, user_data, destroy);  // owns user_data from here on
    require(step != nullptr && count_step != nullptr && save != nullptr && load != nullptr, Status::kInvalidArgument,
            "step, count_step, save or load is NULL; expected four functions");
    const auto& engine = check(optimizer, "optimizer").optimizer;
    check_pointer(out, "out");
    optim::SchedulerFunctions functions;
    functions.step = [step_callback](std::optional<double> metric) {
      step_callback.checked("step", metric.value_or(ACCEL_UNSET_DOUBLE));
    };
    functions.count_step = [callback = step_callback.with(count_step)] { callback.checked("count_step"); };
    functions.save = save_function(step_callback.with(save));
    functions.load = load_function(step_callback.with(load));
    *out = std::make_unique<accel_scheduler>(optim::application_scheduler(engine, std::move(functions))).release();
  });
}

}  // namespace accel::capi
