// SPDX-License-Identifier: Apache-2.0
// Schedules that multiply the initial rate by a factor, in closed form.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "optim/schedules/schedule.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace {

constexpr int64_t kInverseSqrtTimescale = 10000;  // without a warm-up that could give it

void check_steps(int64_t warmup_steps, int64_t total_steps) {
  require(warmup_steps >= 0 && total_steps >= 1 && warmup_steps <= total_steps, Status::kInvalidArgument,
          "warmup_steps is ", warmup_steps, " and total_steps ", total_steps,
          "; expected 0 <= warmup_steps <= total_steps and at least one step");
}

void check_warmup(int64_t warmup_steps) {
  require(warmup_steps >= 0, Status::kInvalidArgument, "warmup_steps is ", warmup_steps, "; expected at least 0");
}

// The progress of step from begin to end; an empty range counts as one step.
double fraction(int64_t step, int64_t begin, int64_t end) {
  return static_cast<double>(step - begin) / static_cast<double>(std::max<int64_t>(1, end - begin));
}

double checked(double factor, int64_t step) {
  require(std::isfinite(factor) && factor >= 0, Status::kInvalidArgument, "the learning rate's factor at step ", step,
          " is ", factor, "; expected a finite number of at least 0");
  return factor;
}

void describe_factors(int64_t, size_t groups, Map& state) {  // torch cannot write functions either
  auto none = tree::new_list();
  for (size_t i = 0; i < groups; ++i) none.push_back(c10::IValue());
  state.insert("lr_lambdas", none);
}

}  // namespace

Schedule factor_schedule(LearningRateFactor factor) {
  Schedule schedule;
  schedule.next = [factor = std::move(factor)](int64_t step, bool, c10::ArrayRef<double> base_lrs,
                                               std::vector<double>& lrs) {
    const double now = checked(factor(step), step);
    for (size_t i = 0; i < lrs.size(); ++i) lrs[i] = base_lrs[i] * now;
  };
  schedule.describe = describe_factors;
  return schedule;
}

Schedule group_factor_schedule(GroupFactor factor) {
  Schedule schedule;
  schedule.next = [factor = std::move(factor)](int64_t step, bool, c10::ArrayRef<double> base_lrs,
                                               std::vector<double>& lrs) {
    for (size_t i = 0; i < lrs.size(); ++i) lrs[i] = base_lrs[i] * checked(factor(step, static_cast<int64_t>(i)), step);
  };
  schedule.describe = describe_factors;
  return schedule;
}

LearningRateFactor constant_factor(int64_t warmup_steps) {
  check_warmup(warmup_steps);
  return [=](int64_t step) { return step < warmup_steps ? fraction(step, 0, warmup_steps) : 1.0; };
}

LearningRateFactor linear_warmup_factor(int64_t warmup_steps, int64_t total_steps) {
  check_steps(warmup_steps, total_steps);
  return [=](int64_t step) {
    if (step < warmup_steps) return fraction(step, 0, warmup_steps);
    return std::max(0.0, static_cast<double>(total_steps - step) /
                             static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps)));
  };
}

LearningRateFactor cosine_factor(int64_t warmup_steps, int64_t total_steps, double min_factor) {
  check_steps(warmup_steps, total_steps);
  require_not_negative(min_factor, "min_factor");
  return [=](int64_t step) {
    if (step < warmup_steps) return fraction(step, 0, warmup_steps);
    const double progress = std::min(1.0, fraction(step, warmup_steps, total_steps));
    return min_factor + (1.0 - min_factor) * 0.5 * (1.0 + std::cos(kPi * progress));
  };
}

LearningRateFactor hard_restarts_factor(int64_t warmup_steps, int64_t total_steps, int64_t num_cycles) {
  check_steps(warmup_steps, total_steps);
  require(num_cycles >= 1, Status::kInvalidArgument, "num_cycles is ", num_cycles, "; expected at least 1");
  return [=](int64_t step) {
    if (step < warmup_steps) return fraction(step, 0, warmup_steps);
    const double progress = fraction(step, warmup_steps, total_steps);
    if (progress >= 1) return 0.0;
    return 0.5 * (1.0 + std::cos(kPi * std::fmod(static_cast<double>(num_cycles) * progress, 1.0)));
  };
}

LearningRateFactor inverse_sqrt_factor(int64_t warmup_steps, std::optional<int64_t> timescale) {
  check_warmup(warmup_steps);
  const int64_t scale = timescale.value_or(warmup_steps > 0 ? warmup_steps : kInverseSqrtTimescale);
  require(scale >= 1, Status::kInvalidArgument, "timescale is ", scale, "; expected at least 1");
  return [=](int64_t step) {
    if (step < warmup_steps) return fraction(step, 0, warmup_steps);
    return 1.0 / std::sqrt(fraction(step, warmup_steps - scale, warmup_steps));
  };
}

}  // namespace accel::optim
