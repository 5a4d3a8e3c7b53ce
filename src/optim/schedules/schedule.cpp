// SPDX-License-Identifier: Apache-2.0
// Schedules of torch.optim.lr_scheduler that multiply the current rates.
#include "optim/schedules/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace accel::optim {
namespace {

struct Rate {
  int64_t step;
  bool first;
  double base;
  double present;
};

// A schedule that treats groups independently.
template <typename Rule>
Schedule::Next each(Rule rule) {
  return [rule](int64_t step, bool first, c10::ArrayRef<double> base_lrs, std::vector<double>& lrs) {
    for (size_t i = 0; i < lrs.size(); ++i) lrs[i] = rule(Rate{step, first, base_lrs[i], lrs[i]});
  };
}

void require_at_least_one(int64_t value, const char* name) {
  require(value >= 1, Status::kInvalidArgument, name, " is ", value, "; expected at least 1");
}

void require_factor(double value, const char* name, bool zero_too) {
  require((zero_too ? value >= 0 : value > 0) && value <= 1, Status::kInvalidArgument, name, " is ", value,
          zero_too ? "; expected a number in [0, 1]" : "; expected a number above 0 and at most 1");
}

double half_cosine(double progress) { return (1 + std::cos(kPi * progress)) / 2; }

}  // namespace

Schedule step_schedule(int64_t step_size, double gamma) {
  require_at_least_one(step_size, "step_size");
  require_not_negative(gamma, "gamma");
  Schedule schedule;
  schedule.next = each([=](const Rate& rate) {
    return rate.step == 0 || rate.step % step_size != 0 ? rate.present : rate.present * gamma;
  });
  schedule.describe = [=](int64_t, size_t, Map& state) {
    state.insert("step_size", step_size);
    state.insert("gamma", gamma);
  };
  return schedule;
}

Schedule multi_step_schedule(std::vector<int64_t> milestones, double gamma) {
  for (const int64_t milestone : milestones)
    require(milestone >= 0, Status::kInvalidArgument, "a milestone is ", milestone, "; expected steps from 0 on");
  require_not_negative(gamma, "gamma");
  Schedule schedule;
  schedule.next = each([=, milestones = std::move(milestones)](const Rate& rate) {
    const auto times = std::count(milestones.begin(), milestones.end(), rate.step);
    return times == 0 ? rate.present : rate.present * std::pow(gamma, static_cast<double>(times));
  });
  // torch stores its milestones in a Counter, which a map of strings cannot represent.
  schedule.describe = [=](int64_t, size_t, Map& state) { state.insert("gamma", gamma); };
  return schedule;
}

Schedule constant_schedule(double factor, int64_t total_iters) {
  require_factor(factor, "factor", /*zero_too=*/false);
  require_at_least_one(total_iters, "total_iters");
  Schedule schedule;
  schedule.next = each([=](const Rate& rate) {
    if (rate.step == 0) return rate.present * factor;
    return rate.step == total_iters ? rate.present * (1.0 / factor) : rate.present;
  });
  schedule.describe = [=](int64_t, size_t, Map& state) {
    state.insert("factor", factor);
    state.insert("total_iters", total_iters);
  };
  return schedule;
}

Schedule linear_schedule(double start_factor, double end_factor, int64_t total_iters) {
  require_factor(start_factor, "start_factor", /*zero_too=*/false);
  require_factor(end_factor, "end_factor", /*zero_too=*/true);
  require_at_least_one(total_iters, "total_iters");
  Schedule schedule;
  schedule.next = each([=](const Rate& rate) {
    if (rate.step == 0) return rate.present * start_factor;
    if (rate.first || rate.step > total_iters) return rate.present;
    const double slope = end_factor - start_factor;
    const double before = static_cast<double>(total_iters) * start_factor + static_cast<double>(rate.step - 1) * slope;
    return rate.present * (1.0 + slope / before);
  });
  schedule.describe = [=](int64_t, size_t, Map& state) {
    state.insert("start_factor", start_factor);
    state.insert("end_factor", end_factor);
    state.insert("total_iters", total_iters);
  };
  return schedule;
}

Schedule exponential_schedule(double gamma) {
  require_not_negative(gamma, "gamma");
  Schedule schedule;
  schedule.next = each([=](const Rate& rate) { return rate.first ? rate.present : rate.present * gamma; });
  schedule.describe = [=](int64_t, size_t, Map& state) { state.insert("gamma", gamma); };
  return schedule;
}

Schedule polynomial_schedule(int64_t total_iters, double power) {
  require_at_least_one(total_iters, "total_iters");
  require_not_negative(power, "power");
  Schedule schedule;
  schedule.next = each([=](const Rate& rate) {
    if (rate.first || rate.step > total_iters) return rate.present;
    const auto total = static_cast<double>(total_iters), step = static_cast<double>(rate.step);
    return rate.present * std::pow((1.0 - step / total) / (1.0 - (step - 1) / total), power);
  });
  schedule.describe = [=](int64_t, size_t, Map& state) {
    state.insert("total_iters", total_iters);
    state.insert("power", power);
  };
  return schedule;
}

Schedule cosine_annealing_schedule(int64_t t_max, double eta_min) {
  require_at_least_one(t_max, "t_max");
  require_not_negative(eta_min, "eta_min");
  Schedule schedule;
  schedule.next = each([=](const Rate& rate) {
    if (rate.first) return rate.present;
    const auto whole = static_cast<double>(t_max), step = static_cast<double>(rate.step);
    // One step after the lowest rate the quotient below would be 0 / 0.
    if ((rate.step - 1 - t_max) % (2 * t_max) == 0)
      return rate.present + (rate.base - eta_min) * (1 - std::cos(kPi / whole)) / 2;
    return (1 + std::cos(kPi * step / whole)) / (1 + std::cos(kPi * (step - 1) / whole)) * (rate.present - eta_min) +
           eta_min;
  });
  schedule.describe = [=](int64_t, size_t, Map& state) {
    state.insert("T_max", t_max);
    state.insert("eta_min", eta_min);
  };
  return schedule;
}

Schedule cosine_warm_restarts_schedule(int64_t t_0, int64_t t_mult, double eta_min) {
  require_at_least_one(t_0, "t_0");
  require_at_least_one(t_mult, "t_mult");
  require_not_negative(eta_min, "eta_min");
  struct Cycle {
    int64_t position, length;
  };
  const auto cycle_at = [=](int64_t step) {
    Cycle cycle{t_mult == 1 ? step % t_0 : step, t_0};
    while (cycle.position >= cycle.length) {
      cycle.position -= cycle.length;
      cycle.length *= t_mult;
    }
    return cycle;
  };
  Schedule schedule;
  schedule.counts_steps = false;
  schedule.next = each([=](const Rate& rate) {
    const Cycle cycle = cycle_at(rate.step);
    return eta_min +
           (rate.base - eta_min) * half_cosine(static_cast<double>(cycle.position) / static_cast<double>(cycle.length));
  });
  schedule.describe = [=](int64_t step, size_t, Map& state) {
    const Cycle cycle = cycle_at(std::max<int64_t>(step, 0));
    state.insert("T_0", t_0);
    state.insert("T_i", cycle.length);
    state.insert("T_mult", t_mult);
    state.insert("eta_min", eta_min);
    state.insert("T_cur", cycle.position);
  };
  return schedule;
}

}  // namespace accel::optim
