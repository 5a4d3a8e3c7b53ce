// Schedules: which rate follows which, step by step. They keep nothing; where one stands is known by its LrScheduler.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "config/generated/settings.hpp"
#include "optim/settings.hpp"

namespace accel::optim {

inline constexpr double kPi = 3.14159265358979323846;

struct Schedule {
  // The rates of `step` from those before it, in place. `first` is the step with which the schedule begins, usually 0:
  // what follows multiplies the rates of that one.
  using Next = std::function<void(int64_t step, bool first, c10::ArrayRef<double> base_lrs, std::vector<double>& lrs)>;

  Next next;
  std::function<double(int64_t step)> momentum;  // none: the optimizer's stays
  // What torch.optim.lr_scheduler writes of it in its state dict.
  std::function<void(int64_t step, size_t groups, Map& state)> describe = [](int64_t, size_t, Map&) {};
  std::vector<std::pair<const char*, double>> group_values;  // what torch's keeps in the groups, and reads there
  std::optional<int64_t> total_steps;                        // where it ends
  std::optional<double> base_lr;                             // none: the groups' initial rates
  bool replaces_initial_lr = false;  // base_lr becomes the groups' initial rate, also where they have one
  bool counts_steps = true;          // torch's warm restarts leave _step_count alone
};

// A factor of the initial rate in each step.
using LearningRateFactor = std::function<double(int64_t step)>;
Schedule factor_schedule(LearningRateFactor factor);
// Each group has its own.
using GroupFactor = std::function<double(int64_t step, int64_t group)>;
Schedule group_factor_schedule(GroupFactor factor);

// Those begin with a linear rise in warmup_steps steps.
LearningRateFactor constant_factor(int64_t warmup_steps);
// Falls linearly to 0 at total_steps.
LearningRateFactor linear_warmup_factor(int64_t warmup_steps, int64_t total_steps);
// Falls along half a cosine to min_factor at total_steps, and stays there.
LearningRateFactor cosine_factor(int64_t warmup_steps, int64_t total_steps, double min_factor);
// Falls num_cycles times along half a cosine to 0.
LearningRateFactor hard_restarts_factor(int64_t warmup_steps, int64_t total_steps, int64_t num_cycles);
// Falls with the inverse square root; without timescale in warmup_steps, or 10000.
LearningRateFactor inverse_sqrt_factor(int64_t warmup_steps, std::optional<int64_t> timescale);

// As torch's classes of these names.
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
