// SPDX-License-Identifier: Apache-2.0
// Application scheduler: a learning-rate scheduler that the application implements, which the engine prepares, steps
// and saves.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "optim/schedules/scheduler.hpp"

namespace accel::optim {

struct SchedulerFunctions {
  std::function<void(std::optional<double> metric)> step;
  std::function<void()> count_step;  // gradients still accumulate
  std::function<c10::IValue()> save;
  std::function<void(const c10::IValue& state)> load;
};

// A schedule with an end ignores steps behind it.
std::shared_ptr<Scheduler> application_scheduler(std::shared_ptr<Optimizer> optimizer, SchedulerFunctions functions);

}  // namespace accel::optim
