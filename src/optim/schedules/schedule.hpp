// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: the rate of each step. They are stateless; the current step is in LrScheduler.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "config/generated/settings/scheduler/cyclic.hpp"
#include "config/generated/settings/scheduler/one_cycle.hpp"
#include "optim/settings.hpp"

namespace accel::optim {

inline constexpr double kPi = 3.14159265358979323846;

struct Schedule {
  // Computes the rates of `step` from the previous ones, in place. `first` is the first step of the schedule, usually
  // 0, whose rates later steps multiply.
  using Next = std::function<void(int64_t step, bool first, c10::ArrayRef<double> base_lrs, std::vector<double>& lrs)>;

  Next next;
  std::function<double(int64_t step)> momentum;  // none: the optimizer's is not changed
  // Its entries in torch's state dict.
  std::function<void(int64_t step, size_t groups, Map& state)> describe = [](int64_t, size_t, Map&) {};
  std::vector<std::pair<const char*, double>> group_values;  // values that torch's schedulers keep in the groups
  std::optional<int64_t> total_steps;                        // the end of the schedule
  std::optional<double> base_lr;                             // none: the groups' initial rates
  bool replaces_initial_lr = false;                          // base_lr replaces the groups' initial rate
  bool counts_steps = true;                                  // torch's warm restarts do not count _step_count
};

// A factor of the initial rate for each step.
using LearningRateFactor = std::function<double(int64_t step)>;
Schedule factor_schedule(LearningRateFactor factor);
// One function per group.
using GroupFactor = std::function<double(int64_t step, int64_t group)>;
Schedule group_factor_schedule(GroupFactor factor);

// These begin with a linear warm-up of warmup_steps steps.
LearningRateFactor constant_factor(int64_t warmup_steps);
// Linear decay to 0 at total_steps.
LearningRateFactor linear_warmup_factor(int64_t warmup_steps, int64_t total_steps);
// Cosine decay to min_factor at total_steps, then constant.
LearningRateFactor cosine_factor(int64_t warmup_steps, int64_t total_steps, double min_factor);
// num_cycles cosine decays to 0, with hard restarts.
LearningRateFactor hard_restarts_factor(int64_t warmup_steps, int64_t total_steps, int64_t num_cycles);
// Inverse square root decay; timescale defaults to warmup_steps, or 10000.
LearningRateFactor inverse_sqrt_factor(int64_t warmup_steps, std::optional<int64_t> timescale);

// These are the classes of torch with the same names.
Schedule step_schedule(int64_t step_size, double gamma);
Schedule multi_step_schedule(std::vector<int64_t> milestones, double gamma);
Schedule constant_schedule(double factor, int64_t total_iters);
Schedule linear_schedule(double start_factor, double end_factor, int64_t total_iters);
Schedule exponential_schedule(double gamma);
Schedule polynomial_schedule(int64_t total_iters, double power);
Schedule cosine_annealing_schedule(int64_t t_max, double eta_min);
Schedule cosine_warm_restarts_schedule(int64_t t_0, int64_t t_mult, double eta_min);

Schedule one_cycle_schedule(double max_lr, int64_t total_steps, const OneCycleSettings& settings);

Schedule cyclic_schedule(double base_lr, double max_lr, const CyclicSettings& settings);

}  // namespace accel::optim
