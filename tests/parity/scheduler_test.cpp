// SPDX-License-Identifier: Apache-2.0
// How far prepared schedulers move: with accumulation, skipped steps, several processes.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "accelerator/prepared_optimizer.hpp"
#include "accelerator/prepared_scheduler.hpp"
#include "base/error.hpp"
#include "fixture.hpp"
#include "named_scheduler.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace scheduler_test {

// Each step is skipped or not as the test says.
class Overflowing final : public optim::Optimizer {
 public:
  bool skipped = false;

  bool step() override { return !skipped; }
  bool step_was_skipped() const override { return skipped; }
  void zero_grad(bool) override {}
  void train(bool) override {}
  const std::vector<optim::ParameterGroup>& groups() const override { return groups_; }
  optim::ParameterGroup& group(size_t index) override { return groups_.at(index); }
  void add_group(std::vector<at::Tensor>, std::optional<double>, std::optional<double>) override {}
  c10::ArrayRef<optim::Setting> settings() const override { return {}; }
  void check_settings(const optim::ParameterGroup&) const override {}
  int64_t state_bytes() const override { return 0; }
  c10::IValue state_dict() const override { return {}; }
  void load_state_dict(const c10::IValue&) override {}

 private:
  std::vector<optim::ParameterGroup> groups_;
};

struct Outcome {
  std::vector<double> lrs;
  c10::IValue state;
};

Outcome run(const c10::IValue& input, bool with_processes) {
  const std::shared_ptr<optim::Optimizer> optimizer = optim::make_optimizer(optim::sgd_rule());
  optimizer->add_group({at::zeros({1}).requires_grad_(true)}, member(input, "lr").toScalar().toDouble(), std::nullopt);
  const auto inner =
      tests::named_scheduler(member(input, "scheduler").toStringRef(), member(input, "arguments"), optimizer);
  const auto overflowing = std::make_shared<Overflowing>();
  const auto gradient_state = std::make_shared<state::GradientState>(state::AccumulationSettings{});
  accelerator::SchedulerStepping stepping;
  const bool split_batches = member(input, "split_batches").toBool();
  stepping.step_with_optimizer = member(input, "step_with_optimizer").toBool();
  stepping.steps_per_update = split_batches || !with_processes ? 1 : member(input, "processes").toInt();
  stepping.stop_at_end = !split_batches;
  const auto prepared = std::make_shared<accelerator::PreparedOptimizer>(
      overflowing, gradient_state, nullptr, std::make_shared<StepTimes>(),
      std::make_shared<parallel::PlacedParameters>(nullptr));
  accelerator::PreparedScheduler scheduler(inner, {prepared}, gradient_state, stepping);
  Outcome outcome;
  const auto sync = member(input, "sync").toListRef(), skipped = member(input, "skipped").toListRef();
  for (size_t call = 0; call < sync.size(); ++call) {
    gradient_state->set_sync_gradients(sync[call].toBool());
    overflowing->skipped = skipped[call].toBool();
    prepared->step();
    scheduler.step();
    EXPECT_EQ(scheduler.last_lr(0), optimizer->lr(0));
    outcome.lrs.push_back(scheduler.last_lr(0));
  }
  outcome.state = scheduler.state_dict();
  return outcome;
}

void compare(const Outcome& outcome, const c10::IValue& expected) {
  const auto lrs = member(expected, "lr").toListRef();
  ASSERT_EQ(outcome.lrs.size(), lrs.size());
  for (size_t call = 0; call < lrs.size(); ++call) {
    const double lr = lrs[call].toScalar().toDouble();
    if (lr < 0) return;  // behind its end torch's linear one-cycle goes below zero; ours stays at the last rate
    ASSERT_NEAR(outcome.lrs[call], lr, 1e-6 * lr + 1e-15) << "call " << call;
  }
  EXPECT_EQ(member(outcome.state, "last_epoch").toInt(), member(expected, "last_epoch").toInt());
  EXPECT_EQ(member(outcome.state, "_step_count").toInt(), member(expected, "step_count").toInt());
}

// Whether a recording has schedules that went further than one step a call. Those of accelerate 1.15 do not: it takes
// the number of processes anew from its process state, which the recording did not change. The rule of several
// processes is compared in bindings/python/tests/test_optim.py:
// test_a_schedule_counts_the_batches_of_all_ranks_or_updates.
bool has_steps_of_processes(const std::vector<Case>& cases) {
  return std::any_of(cases.begin(), cases.end(), [](const Case& recorded) {
    const auto last_epoch = optional_member(recorded.expected, "last_epoch");
    return last_epoch && last_epoch->toInt() > static_cast<int64_t>(member(recorded.input, "sync").toListRef().size());
  });
}

TEST(SchedulerParity, MovesAsTheReference) {
  const auto cases = read_cases("scheduler");
  const bool with_processes = has_steps_of_processes(cases);
  for (const auto& test_case : cases) {
    SCOPED_TRACE(test_case.name);
    if (error_type(test_case.expected))
      EXPECT_THROW(run(test_case.input, with_processes), Error);
    else
      compare(run(test_case.input, with_processes), test_case.expected);
  }
}

// With the schedule's step before the optimizer's, Accelerate asks for the update before: a micro-batch that only
// accumulates is none, and so was not skipped.
TEST(SchedulerParity, MayStepBeforeTheOptimizer) {
  const std::shared_ptr<optim::Optimizer> optimizer = optim::make_optimizer(optim::sgd_rule());
  optimizer->add_group({at::zeros({1}).requires_grad_(true)}, 1, std::nullopt);
  const auto gradient_state = std::make_shared<state::GradientState>(state::AccumulationSettings{2});
  const auto prepared = std::make_shared<accelerator::PreparedOptimizer>(
      optimizer, gradient_state, nullptr, std::make_shared<StepTimes>(),
      std::make_shared<parallel::PlacedParameters>(nullptr));
  auto halving = tree::new_map();
  halving.insert("gamma", 0.5);
  accelerator::PreparedScheduler scheduler(tests::named_scheduler("ExponentialLR", halving, optimizer), {prepared},
                                           gradient_state, {});
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
    gradient_state->begin_micro_batch();
    scheduler.step();
    prepared->step();
  }
  EXPECT_EQ(scheduler.last_lr(0), 0.25);
}

}  // namespace scheduler_test
}  // namespace accel::parity
