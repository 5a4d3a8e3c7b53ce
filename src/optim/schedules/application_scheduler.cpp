// SPDX-License-Identifier: Apache-2.0
#include "optim/schedules/application_scheduler.hpp"

#include "base/error.hpp"

namespace accel::optim {
namespace {

class ApplicationScheduler final : public Scheduler {
 public:
  ApplicationScheduler(std::shared_ptr<Optimizer> optimizer, SchedulerFunctions functions)
      : optimizer_(std::move(optimizer)), functions_(std::move(functions)) {}

  void step() override { functions_.step(std::nullopt); }
  void step_metric(double metric) override { functions_.step(metric); }
  void count_step() override { functions_.count_step(); }
  const std::shared_ptr<Optimizer>& optimizer() const override { return optimizer_; }
  const std::vector<double>& last_lrs() const override { return no_rates_; }  // the application knows them
  c10::IValue state_dict() const override { return functions_.save(); }
  void load_state_dict(const c10::IValue& state) override { functions_.load(state); }
  std::shared_ptr<Scheduler> copy_for(std::shared_ptr<Optimizer>) const override {
    fail(Status::kUnsupported,
         "a scheduler of the application cannot be copied, so its curve is unknown here; expected one of the library");
  }

 private:
  std::shared_ptr<Optimizer> optimizer_;
  SchedulerFunctions functions_;
  std::vector<double> no_rates_;
};

}  // namespace

std::shared_ptr<Scheduler> application_scheduler(std::shared_ptr<Optimizer> optimizer, SchedulerFunctions functions) {
  return std::make_shared<ApplicationScheduler>(std::move(optimizer), std::move(functions));
}

}  // namespace accel::optim
