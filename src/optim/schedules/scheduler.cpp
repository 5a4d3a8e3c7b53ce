// SPDX-License-Identifier: Apache-2.0
#include "optim/schedules/scheduler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "base/error.hpp"
#include "optim/rules/rules.hpp"

namespace accel::optim {
namespace {

// An optimizer with the same rates, for a scheduler to change instead of the real one.
std::shared_ptr<Optimizer> with_rates_of(const Optimizer& optimizer) {
  auto stand_in = make_optimizer(sgd_rule());
  size_t index = 0;
  for (const ParameterGroup& group : optimizer.groups()) {
    stand_in->add_group({at::empty({0}, at::kFloat)}, group.lr, std::nullopt);
    stand_in->group(index++).initial_lr = group.initial_lr;
  }
  return stand_in;
}

}  // namespace

void Scheduler::step_metric(double) {
  fail(Status::kInvalidState, "this scheduler takes no metric; expected one that waits for a plateau");
}

double Scheduler::last_lr(size_t group) const {
  const auto& rates = last_lrs();
  require(group < rates.size(), Status::kNotFound, "parameter group ", group, " is not there; the scheduler drives ",
          rates.size());
  return rates[group];
}

at::Tensor learning_rate_curve(const Scheduler& scheduler, int64_t steps) {
  require(steps >= 1, Status::kInvalidArgument, "n_steps is ", steps, "; expected at least 1");
  const auto optimizer = with_rates_of(*scheduler.optimizer());
  const auto copy = scheduler.copy_for(optimizer);
  const auto groups = static_cast<int64_t>(optimizer->groups().size());
  at::Tensor curve = at::empty({steps, groups}, at::kDouble);
  double* rate = curve.mutable_data_ptr<double>();
  for (int64_t step = 0; step < steps; ++step) {
    if (step > 0) copy->step();
    for (const ParameterGroup& group : optimizer->groups()) *rate++ = group.lr;
  }
  return curve;
}

}  // namespace accel::optim
