// SPDX-License-Identifier: Apache-2.0
// Cyclic and one-cycle schedules, in closed form, with inverse cycles of the momentum.
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "optim/schedules/schedule.hpp"
#include "optim/schedules/scheduler_state.hpp"

namespace accel::optim {
namespace {

struct Pair {
  double lr, momentum;
};

// A phase of a one-cycle schedule, up to its last step, which need not be an integer.
struct Phase {
  double end;
  Pair from, to;
};

std::vector<std::pair<const char*, double>> momentum_values(bool cycled, double base, double most) {
  if (!cycled) return {};
  return {{"base_momentum", base}, {"max_momentum", most}};
}

void check_momentum(bool cycled, double base, double most) {
  if (!cycled) return;
  require(base >= 0 && base < 1 && most >= 0 && most < 1, Status::kInvalidArgument, "base_momentum is ", base,
          " and max_momentum ", most, "; expected numbers in [0, 1)");
}

double anneal(AnnealStrategy kind, double from, double to, double progress) {
  if (kind == AnnealStrategy::kLinear) return (to - from) * progress + from;
  return to + (from - to) / 2.0 * (std::cos(kPi * progress) + 1);
}

std::vector<Phase> phases_of(double max_lr, int64_t total_steps, const OneCycleSettings& settings) {
  const auto steps = static_cast<double>(total_steps);
  const double initial_lr = max_lr / settings.div_factor;
  const Pair begin{initial_lr, settings.max_momentum}, peak{max_lr, settings.base_momentum},
      end{initial_lr / settings.final_div_factor, settings.max_momentum};
  if (!settings.three_phase) return {{settings.pct_start * steps - 1, begin, peak}, {steps - 1, peak, end}};
  return {{settings.pct_start * steps - 1, begin, peak},
          {2 * settings.pct_start * steps - 2, peak, begin},
          {steps - 1, begin, end}};
}

Pair one_cycle_at(const std::vector<Phase>& phases, AnnealStrategy kind, int64_t number) {
  const auto step = static_cast<double>(number);
  double begin = 0;
  size_t i = 0;
  for (; i + 1 < phases.size() && step > phases[i].end; ++i) begin = phases[i].end;
  const Phase& phase = phases[i];
  // An empty phase is at its end.
  const double progress = phase.end == begin ? 1.0 : (step - begin) / (phase.end - begin);
  const double lr = anneal(kind, phase.from.lr, phase.to.lr, progress);
  // After its last step a linear schedule would be negative.
  return {lr < 0 ? phase.to.lr : lr, anneal(kind, phase.from.momentum, phase.to.momentum, progress)};
}

}  // namespace

Schedule one_cycle_schedule(double max_lr, int64_t total_steps, const OneCycleSettings& settings) {
  require_not_negative(max_lr, "max_lr");
  require(total_steps >= 1, Status::kInvalidArgument, "total_steps is ", total_steps, "; expected at least 1");
  require(settings.pct_start >= 0 && settings.pct_start <= 1, Status::kInvalidArgument, "pct_start is ",
          settings.pct_start, "; expected a number in [0, 1]");
  require(settings.div_factor > 0 && settings.final_div_factor > 0, Status::kInvalidArgument, "div_factor is ",
          settings.div_factor, " and final_div_factor ", settings.final_div_factor, "; expected numbers above 0");
  check_momentum(settings.cycle_momentum, settings.base_momentum, settings.max_momentum);
  const auto phases = phases_of(max_lr, total_steps, settings);
  Schedule schedule;
  schedule.total_steps = total_steps;
  schedule.base_lr = max_lr / settings.div_factor;
  schedule.replaces_initial_lr = true;
  schedule.group_values = momentum_values(settings.cycle_momentum, settings.base_momentum, settings.max_momentum);
  schedule.group_values.emplace_back("max_lr", max_lr);
  schedule.group_values.emplace_back("min_lr", *schedule.base_lr / settings.final_div_factor);
  schedule.next = [=](int64_t step, bool, c10::ArrayRef<double>, std::vector<double>& lrs) {
    require(step <= total_steps, Status::kInvalidState, "this is step ", step, " of a one-cycle schedule of ",
            total_steps, " steps; make it with as many total_steps as there are updates");
    lrs.assign(lrs.size(), one_cycle_at(phases, settings.anneal_strategy, step).lr);
  };
  if (settings.cycle_momentum)
    schedule.momentum = [=](int64_t step) { return one_cycle_at(phases, settings.anneal_strategy, step).momentum; };
  schedule.describe = [=](int64_t, size_t, Map& state) {
    state.insert("total_steps", total_steps);
    state.insert("_anneal_func_type", settings.anneal_strategy == AnnealStrategy::kCos ? "cos" : "linear");
    state.insert("cycle_momentum", settings.cycle_momentum);
  };
  return schedule;
}

Schedule cyclic_schedule(double base_lr, double max_lr, const CyclicSettings& settings) {
  require_not_negative(base_lr, "base_lr");
  require_not_negative(max_lr, "max_lr");
  const int64_t up = settings.step_size_up, down = settings.step_size_down.value_or(up);
  require(up >= 1 && down >= 1, Status::kInvalidArgument, "step_size_up is ", up, " and step_size_down ", down,
          "; expected at least 1");
  require(std::isfinite(settings.gamma) && settings.gamma > 0, Status::kInvalidArgument, "gamma is ", settings.gamma,
          "; expected a finite number above 0");
  check_momentum(settings.cycle_momentum, settings.base_momentum, settings.max_momentum);
  const double total = static_cast<double>(up) + static_cast<double>(down), ratio = static_cast<double>(up) / total;
  // The position between the two rates, from 0 to 1.
  const auto height = [=, mode = settings.mode, gamma = settings.gamma](int64_t step) {
    const double cycle = std::floor(1 + static_cast<double>(step) / total);
    const double x = 1.0 + static_cast<double>(step) / total - cycle;
    const double triangle = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    if (mode == CycleMode::kTriangular) return triangle;
    return triangle * (mode == CycleMode::kTriangular2 ? 1 / std::pow(2.0, cycle - 1)
                                                       : std::pow(gamma, static_cast<double>(step)));
  };
  Schedule schedule;
  schedule.base_lr = base_lr;
  schedule.group_values = momentum_values(settings.cycle_momentum, settings.base_momentum, settings.max_momentum);
  schedule.next = [=](int64_t step, bool, c10::ArrayRef<double>, std::vector<double>& lrs) {
    lrs.assign(lrs.size(), base_lr + (max_lr - base_lr) * height(step));
  };
  if (settings.cycle_momentum)
    schedule.momentum = [=, base = settings.base_momentum, most = settings.max_momentum](int64_t step) {
      return most - (most - base) * height(step);
    };
  schedule.describe = [=](int64_t, size_t groups, Map& state) {
    static constexpr std::array<const char*, 3> kModes = {"triangular", "triangular2", "exp_range"};
    state.insert("max_lrs", as_list(std::vector<double>(groups, max_lr)));
    state.insert("total_size", total);
    state.insert("step_ratio", ratio);
    state.insert("mode", kModes[static_cast<size_t>(settings.mode.value)]);
    state.insert("gamma", settings.gamma);
    state.insert("scale_mode", settings.mode == CycleMode::kExpRange ? "iterations" : "cycle");
    state.insert("cycle_momentum", settings.cycle_momentum);
    state.insert("_scale_fn_custom", c10::IValue());
  };
  return schedule;
}

}  // namespace accel::optim
