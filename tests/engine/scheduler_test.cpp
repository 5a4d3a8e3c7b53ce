// SPDX-License-Identifier: Apache-2.0
// Schedulers. What is compared with torch.optim.lr_scheduler was recorded by fixtures/make_scheduler_fixtures.py.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "accelerator/prepared_scheduler.hpp"
#include "base/log.hpp"
#include "expect_error.hpp"
#include "named_scheduler.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace scheduler_test {

using tests::expect_error;

using tests::named_scheduler;
using tests::SchedulerArguments;

std::shared_ptr<Optimizer> new_optimizer(const std::vector<double>& lrs) {
  const std::shared_ptr<Optimizer> optimizer = make_optimizer(sgd_rule(), {{"momentum", 0.5}});
  for (const double lr : lrs) optimizer->add_group({at::zeros({1}).requires_grad_(true)}, lr, std::nullopt);
  return optimizer;
}

std::shared_ptr<Optimizer> rate_of_one() { return new_optimizer({1}); }

LrScheduler along(const std::shared_ptr<Optimizer>& optimizer, LearningRateFactor factor) {
  return LrScheduler(optimizer, factor_schedule(std::move(factor)));
}

std::vector<double> lrs_of(const Optimizer& optimizer) {
  std::vector<double> lrs;
  for (const ParameterGroup& group : optimizer.groups()) lrs.push_back(group.lr);
  return lrs;
}

std::vector<double> momenta_of(const Optimizer& optimizer) {
  const c10::IValue state = optimizer.state_dict();
  std::vector<double> momenta;
  for (const auto& group : state.toGenericDict().at("param_groups").toListRef())
    momenta.push_back(group.toGenericDict().at("momentum").toDouble());
  return momenta;
}

std::vector<double> numbers(const c10::IValue& list) {
  std::vector<double> result;
  for (const auto& item : list.toListRef()) result.push_back(item.toScalar().toDouble());
  return result;
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-12 * std::abs(expected[i]) + 1e-16) << what << ", " << i;
}

// --- As torch -------------------------------------------------------------------------------------------------------

c10::IValue recorded() {
  const std::string path = ACCEL_TEST_FIXTURES "/schedulers.json";
  std::ifstream file(path, std::ios::binary);
  return tree::from_json({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, path);
}

bool is_number(const c10::IValue& value) { return value.isDouble() || value.isInt(); }

// Every entry of ours is in torch's, with the same value.
void expect_in(const c10::IValue& ours, const c10::IValue& theirs, const std::string& path) {
  if (ours.isGenericDict()) {
    ASSERT_TRUE(theirs.isGenericDict()) << path;
    for (const auto& entry : ours.toGenericDict()) {
      const std::string key = path + "." + entry.key().toStringRef();
      ASSERT_TRUE(theirs.toGenericDict().contains(entry.key())) << key << " is not torch's";
      expect_in(entry.value(), theirs.toGenericDict().at(entry.key()), key);
    }
  } else if (ours.isList()) {
    ASSERT_TRUE(theirs.isList() && theirs.toListRef().size() == ours.toListRef().size()) << path;
    for (size_t i = 0; i < ours.toListRef().size(); ++i)
      expect_in(ours.toListRef()[i], theirs.toListRef()[i], path + "." + std::to_string(i));
  } else if (ours.isDouble() && std::isinf(ours.toDouble())) {
    EXPECT_EQ(theirs.isString() ? theirs.toStringRef() : "", ours.toDouble() > 0 ? "inf" : "-inf") << path;
  } else if (is_number(ours)) {
    ASSERT_TRUE(is_number(theirs)) << path;
    expect_close({ours.toScalar().toDouble()}, {theirs.toScalar().toDouble()}, path);
  } else if (!(ours.isNone() && theirs.isGenericDict())) {  // transformers' lambdas are objects with an empty state
    EXPECT_TRUE(tree::equal(ours, theirs)) << path;
  }
}

// What torch cannot do without when it reads ours.
void expect_enough(const c10::impl::GenericDict& ours, const c10::impl::GenericDict& theirs) {
  for (const char* key : {"last_epoch", "_step_count", "base_lrs", "_last_lr", "T_cur", "T_i", "best", "num_bad_epochs",
                          "cooldown_counter", "_schedulers", "lr_lambdas", "_scale_fn_custom"})
    EXPECT_EQ(ours.contains(key), theirs.contains(key)) << key;
}

struct Recorded {
  std::string name;
  c10::IValue arguments, lrs, momenta, states;
  std::vector<double> metrics;

  std::vector<double> lrs_at(size_t step) const { return numbers(lrs.toListRef()[step]); }
  size_t steps() const { return lrs.toListRef().size() - 1; }
  bool has_metric() const { return name == "ReduceLROnPlateau"; }
  void step(Scheduler& scheduler, size_t step) const {
    if (has_metric())
      scheduler.step_metric(metrics[step - 1]);
    else
      scheduler.step();
  }
};

std::vector<Recorded> recorded_cases() {
  const auto document = recorded().toGenericDict();
  std::vector<Recorded> cases;
  for (const auto& entry : document.at("cases").toListRef()) {
    const auto map = entry.toGenericDict();
    cases.push_back({map.at("name").toStringRef(), map.at("arguments"), map.at("lrs"), map.at("momenta"),
                     map.at("states"), numbers(document.at("metrics"))});
  }
  return cases;
}

TEST(SchedulerAsTorch, RatesMomentaAndStateDicts) {
  for (const Recorded& recorded : recorded_cases()) {
    SCOPED_TRACE(recorded.name + " " + tree::to_json(recorded.arguments));
    const auto optimizer = new_optimizer({0.4, 0.05});
    const auto scheduler = named_scheduler(recorded.name, recorded.arguments, optimizer);
    const auto states = recorded.states.toGenericDict();
    for (size_t step = 0; step <= recorded.steps(); ++step) {
      if (step > 0) recorded.step(*scheduler, step);
      const std::string what = "step " + std::to_string(step);
      expect_close(lrs_of(*optimizer), recorded.lrs_at(step), what);
      expect_close(scheduler->last_lrs(), recorded.lrs_at(step), what);
      expect_close(momenta_of(*optimizer), numbers(recorded.momenta.toListRef()[step]), what + " momentum");
      if (!states.contains(std::to_string(step))) continue;
      const c10::IValue theirs = states.at(std::to_string(step));
      expect_in(scheduler->state_dict(), theirs, what);
      expect_enough(scheduler->state_dict().toGenericDict(), theirs.toGenericDict());
    }
  }
}

TEST(SchedulerAsTorch, ItsStateDictsAreContinued) {
  for (const Recorded& recorded : recorded_cases())
    for (const auto& saved : recorded.states.toGenericDict()) {
      SCOPED_TRACE(recorded.name + " " + tree::to_json(recorded.arguments) + " at " + saved.key().toStringRef());
      const auto optimizer = new_optimizer({0.4, 0.05});
      const auto scheduler = named_scheduler(recorded.name, recorded.arguments, optimizer);
      scheduler->load_state_dict(saved.value());
      const size_t begin = std::stoul(saved.key().toStringRef());
      for (size_t step = begin; step <= recorded.steps(); ++step) {
        if (step > begin) recorded.step(*scheduler, step);
        expect_close(lrs_of(*optimizer), recorded.lrs_at(step), "step " + std::to_string(step));
      }
    }
}

TEST(SchedulerAsTorch, TheCurveIsListedWithoutSteps) {
  for (const Recorded& recorded : recorded_cases()) {
    if (recorded.has_metric()) continue;
    SCOPED_TRACE(recorded.name + " " + tree::to_json(recorded.arguments));
    const auto optimizer = new_optimizer({0.4, 0.05});
    const auto scheduler = named_scheduler(recorded.name, recorded.arguments, optimizer);
    const size_t begin = 3;
    for (size_t step = 0; step < begin; ++step) scheduler->step();
    const c10::IValue before = scheduler->state_dict();
    const auto rows = static_cast<int64_t>(recorded.steps() + 1 - begin);
    const at::Tensor curve = learning_rate_curve(*scheduler, rows);
    ASSERT_EQ(curve.sizes(), at::IntArrayRef({rows, 2}));
    for (int64_t row = 0; row < rows; ++row) {
      const double* const lrs = curve.const_data_ptr<double>() + 2 * row;
      expect_close({lrs[0], lrs[1]}, recorded.lrs_at(begin + static_cast<size_t>(row)), "row " + std::to_string(row));
    }
    EXPECT_TRUE(tree::equal(scheduler->state_dict(), before));
    expect_close(lrs_of(*optimizer), recorded.lrs_at(begin), "the optimizer");
  }
}

// --- One by one -----------------------------------------------------------------------------------------------------

TEST(SchedulerGroups, AreDrivenFromTheirOwnRates) {
  const auto optimizer = new_optimizer({1, 0.5});
  LrScheduler scheduler(optimizer, step_schedule(1, 0.5));
  optimizer->add_group({at::zeros({1}).requires_grad_(true)}, 4.0, std::nullopt);
  scheduler.step();
  EXPECT_EQ(lrs_of(*optimizer), (std::vector<double>{0.5, 0.25, 2}));
  expect_error(Status::kNotFound, "group 3", [&] { scheduler.last_lr(3); });
}

TEST(SchedulerState, ContinuesTheSchedule) {
  const auto optimizer = rate_of_one();
  LrScheduler scheduler = along(optimizer, linear_warmup_factor(3, 10));
  for (int step = 0; step < 4; ++step) scheduler.step();
  scheduler.count_step();
  const auto state = scheduler.state_dict();
  EXPECT_EQ(state.toGenericDict().at("last_epoch").toInt(), 4);
  EXPECT_EQ(state.toGenericDict().at("_step_count").toInt(), 6);

  const auto other = rate_of_one();
  LrScheduler resumed = along(other, linear_warmup_factor(3, 10));
  resumed.load_state_dict(state);
  EXPECT_EQ(other->lr(0), optimizer->lr(0));
  scheduler.step();
  resumed.step();
  EXPECT_EQ(other->lr(0), optimizer->lr(0));

  for (const char* key : {"last_epoch", "_step_count", "base_lrs", "_last_lr"}) {
    auto broken = tree::new_map();
    for (const auto& entry : state.toGenericDict())
      if (entry.key().toStringRef() != key) broken.insert(entry.key(), entry.value());
    expect_error(Status::kInvalidArgument, key, [&] { resumed.load_state_dict(broken); });
  }
  EXPECT_TRUE(tree::equal(resumed.state_dict(), scheduler.state_dict()));
}

TEST(SchedulerState, ABrokenPartLeavesTheWholeAsItWas) {
  const auto optimizer = rate_of_one();
  const std::vector<std::shared_ptr<Scheduler>> both = {
      std::make_shared<LrScheduler>(optimizer, exponential_schedule(0.5)),
      std::make_shared<LrScheduler>(optimizer, step_schedule(2, 0.1))};
  ChainedScheduler chained(scheduler_parts(both));
  chained.step();
  const c10::IValue before = chained.state_dict();
  chained.step();
  c10::impl::GenericDict broken = before.toGenericDict().copy();
  auto parts = tree::new_list();
  parts.push_back(before.toGenericDict().at("_schedulers").toListRef()[0]);
  parts.push_back(tree::new_map());
  broken.insert_or_assign("_schedulers", parts);
  const c10::IValue now = chained.state_dict();
  const double lr = optimizer->lr(0);
  expect_error(Status::kInvalidArgument, "last_epoch", [&] { chained.load_state_dict(broken); });
  EXPECT_TRUE(tree::equal(chained.state_dict(), now));
  EXPECT_EQ(optimizer->lr(0), lr);
  parts.pop_back();
  expect_error(Status::kInvalidArgument, "has 1 parts", [&] { chained.load_state_dict(broken); });
  chained.load_state_dict(before);
  EXPECT_TRUE(tree::equal(chained.state_dict(), before));
}

TEST(SchedulerState, OtherSettingsThanTheSavedOnesAreReported) {
  std::string report;
  set_log_callback([](int32_t, const char* message, void* text) { *static_cast<std::string*>(text) += message; },
                   &report, nullptr);
  LrScheduler saved(rate_of_one(), exponential_schedule(0.5));
  LrScheduler(rate_of_one(), exponential_schedule(0.5)).load_state_dict(saved.state_dict());
  EXPECT_EQ(report, "");
  const auto optimizer = rate_of_one();
  LrScheduler other(optimizer, exponential_schedule(0.25));
  other.load_state_dict(saved.state_dict());
  set_log_callback(nullptr, nullptr, nullptr);
  EXPECT_NE(report.find("\"gamma\" of a scheduler is 0.5"), std::string::npos) << report;
  other.step();
  EXPECT_EQ(optimizer->lr(0), 0.25);
}

TEST(SchedulerStart, OfAFactorIsTheInitialRate) {
  const auto optimizer = rate_of_one();
  LrScheduler first(optimizer, step_schedule(1, 0.5));
  first.step();
  LrScheduler second = along(optimizer, constant_factor(0));
  EXPECT_EQ(optimizer->lr(0), 1);
  const auto group = optimizer->state_dict().toGenericDict().at("param_groups").toListRef()[0].toGenericDict();
  EXPECT_EQ(group.at("initial_lr").toDouble(), 1);
}

TEST(SchedulerMomentum, IsBeta1OfAdamAndStaysWhereItIsNotCycled) {
  const auto beta1_of = [](const Optimizer& optimizer) {
    const auto group = optimizer.state_dict().toGenericDict().at("param_groups").toListRef()[0].toGenericDict();
    return group.at("betas").toListRef()[0].toDouble();
  };
  const auto adam = make_optimizer(adam_rule(WeightDecay::kDecoupled));
  adam->add_group({at::zeros({1}).requires_grad_(true)}, std::nullopt, std::nullopt);
  OneCycleSettings settings;
  settings.cycle_momentum = false;
  LrScheduler still(adam, one_cycle_schedule(0.1, 10, settings));
  EXPECT_EQ(beta1_of(*adam), 0.9);
  LrScheduler cycled(adam, one_cycle_schedule(0.1, 10, {}));
  EXPECT_EQ(beta1_of(*adam), 0.95);
  cycled.step();
  cycled.step();
  EXPECT_NEAR(beta1_of(*adam), 0.85, 1e-12);
}

// torch's OneCycleLR goes on from a state dict of the optimizer only when these are there.
TEST(SchedulerOneCycle, LeavesInTheGroupsWhatTorchReadsThere) {
  const auto value = [](const Optimizer& optimizer, const char* key) {
    const c10::IValue groups = optimizer.state_dict().toGenericDict().at("param_groups");
    const auto group = groups.toListRef()[0].toGenericDict();
    return group.contains(key) ? group.at(key).toDouble() : -1.0;
  };
  for (const bool cycled : {true, false}) {
    const auto optimizer = make_optimizer(sgd_rule(), {{"lr", 0.1}, {"momentum", 0.9}});
    optimizer->add_group({at::zeros({1}).set_requires_grad(true)}, std::nullopt, std::nullopt);
    EXPECT_EQ(value(*optimizer, "max_lr"), -1);
    OneCycleSettings settings;
    settings.cycle_momentum = cycled;
    const LrScheduler scheduler(optimizer, one_cycle_schedule(0.5, 20, settings));
    for (const bool loaded : {false, true}) {
      if (loaded) optimizer->load_state_dict(optimizer->state_dict());
      EXPECT_EQ(value(*optimizer, "max_lr"), 0.5);
      EXPECT_DOUBLE_EQ(value(*optimizer, "min_lr"), 2e-6);
      EXPECT_DOUBLE_EQ(value(*optimizer, "initial_lr"), 0.02);
      EXPECT_EQ(value(*optimizer, "max_momentum"), cycled ? 0.95 : -1);
      EXPECT_EQ(value(*optimizer, "base_momentum"), cycled ? 0.85 : -1);
    }
    CyclicSettings cyclic;
    const LrScheduler other(optimizer, cyclic_schedule(0.1, 0.5, cyclic));
    EXPECT_EQ(value(*optimizer, "max_momentum"), 0.9);
    EXPECT_EQ(value(*optimizer, "max_lr"), -1);
  }
}

TEST(SchedulerOneCycle, HasAnEnd) {
  const auto optimizer = rate_of_one();
  OneCycleSettings linear;
  linear.anneal_strategy = AnnealStrategy::kLinear;
  LrScheduler scheduler(optimizer, one_cycle_schedule(1, 5, linear));
  for (int step = 0; step < 5; ++step) {
    EXPECT_FALSE(scheduler.has_ended());
    scheduler.step();
  }
  EXPECT_TRUE(scheduler.has_ended());
  EXPECT_NEAR(optimizer->lr(0), 1.0 / 25 / 1e4, 1e-12);  // not below zero, as torch's
  expect_error(Status::kInvalidState, "step 6 of a one-cycle schedule of 5 steps", [&] { scheduler.step(); });
  LrScheduler at_once(optimizer, one_cycle_schedule(0.5, 10, [] {
                        OneCycleSettings settings;
                        settings.pct_start = 0.1;  // the rise has no step: torch divides by zero
                        return settings;
                      }()));
  EXPECT_NEAR(optimizer->lr(0), 0.5, 1e-12);
}

TEST(SchedulerPlateau, NeedsAMetric) {
  PlateauScheduler plateau(rate_of_one(), {});
  expect_error(Status::kInvalidState, "without a metric", [&] { plateau.step(); });
  expect_error(Status::kInvalidState, "without a metric", [&] { learning_rate_curve(plateau, 2); });
  LrScheduler steps(rate_of_one(), exponential_schedule(0.5));
  expect_error(Status::kInvalidState, "takes no metric", [&] { steps.step_metric(1); });
}

TEST(SchedulerPlateau, NotANumberIsNoImprovement) {
  const auto optimizer = rate_of_one();
  PlateauSettings settings;
  settings.patience = 1;
  PlateauScheduler plateau(optimizer, settings);
  plateau.step_metric(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(optimizer->lr(0), 1);
  plateau.step_metric(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(optimizer->lr(0), 0.1);
}

// --- Prepared -------------------------------------------------------------------------------------------------------

using accelerator::PreparedScheduler;
using accelerator::SchedulerStepping;

std::shared_ptr<state::GradientState> accumulating(bool adjust_scheduler) {
  state::AccumulationSettings settings;
  settings.num_steps = 2;
  settings.adjust_scheduler = adjust_scheduler;
  return std::make_shared<state::GradientState>(settings);
}

TEST(SchedulerPrepared, CountsAccumulatingStepsOnlyWhenAsked) {
  for (const bool adjust : {false, true}) {
    const auto gradient_state = accumulating(adjust);
    PreparedScheduler scheduler(std::make_shared<LrScheduler>(rate_of_one(), exponential_schedule(0.5)), {},
                                gradient_state, {});
    for (int batch = 0; batch < 4; ++batch) {
      gradient_state->begin_micro_batch();
      scheduler.step();
    }
    const auto state = scheduler.state_dict().toGenericDict();
    EXPECT_EQ(state.at("last_epoch").toInt(), 2);
    EXPECT_EQ(state.at("_step_count").toInt(), adjust ? 5 : 3);
  }
}

TEST(SchedulerPrepared, AMetricCountsOnceForAllRanks) {
  const auto optimizer = rate_of_one();
  PlateauSettings settings;
  settings.patience = 2;
  SchedulerStepping stepping;
  stepping.steps_per_update = 8;
  PreparedScheduler scheduler(std::make_shared<PlateauScheduler>(optimizer, settings), {}, accumulating(false),
                              stepping);
  for (int epoch = 0; epoch < 3; ++epoch) scheduler.step_metric(1);
  EXPECT_EQ(optimizer->lr(0), 1);
  scheduler.step_metric(1);
  EXPECT_EQ(optimizer->lr(0), 0.1);
}

TEST(SchedulerPrepared, TheCurveCountsAsTheStepsWill) {
  const auto optimizer = rate_of_one();
  const auto gradient_state = accumulating(false);
  gradient_state->set_sync_gradients(false);
  SchedulerStepping stepping;
  stepping.steps_per_update = 3;
  PreparedScheduler scheduler(std::make_shared<LrScheduler>(optimizer, exponential_schedule(0.5)), {}, gradient_state,
                              stepping);
  const at::Tensor curve = learning_rate_curve(scheduler, 3);
  EXPECT_TRUE(at::equal(curve, at::tensor({1.0, 0.125, 0.015625}, at::kDouble).reshape({3, 1})));
  gradient_state->set_sync_gradients(true);
  scheduler.step();
  EXPECT_EQ(optimizer->lr(0), 0.125);

  // A schedule with an end is stayed at.
  PreparedScheduler ending(std::make_shared<LrScheduler>(optimizer, one_cycle_schedule(1, 4, {})), {}, gradient_state,
                           stepping);
  const at::Tensor to_the_end = learning_rate_curve(ending, 5);
  EXPECT_TRUE(at::equal(to_the_end[2], to_the_end[4]));
}

// --- Refusals -------------------------------------------------------------------------------------------------------

TEST(SchedulerRefuses, BadSettings) {
  const auto refused = [](const char* name, const char* arguments, const char* part) {
    SCOPED_TRACE(arguments);
    expect_error(Status::kInvalidArgument, part,
                 [&] { tests::named_schedule(name, SchedulerArguments(tree::from_json(arguments, "the test"))); });
  };
  refused("StepLR", R"({"step_size": 0, "gamma": 0.5})", "step_size is 0");
  refused("MultiStepLR", R"({"milestones": [-1], "gamma": 0.5})", "a milestone is -1");
  refused("ConstantLR", R"({"factor": 0, "total_iters": 3})", "factor is 0");
  refused("ConstantLR", R"({"factor": 0.5, "total_iters": 0})", "total_iters is 0");
  refused("LinearLR", R"({"start_factor": 0, "total_iters": 3})", "start_factor is 0");
  refused("LinearLR", R"({"start_factor": 1, "end_factor": 2, "total_iters": 3})", "end_factor is 2");
  refused("ExponentialLR", R"({"gamma": -1})", "gamma is -1");
  refused("PolynomialLR", R"({"total_iters": 3, "power": -1})", "power is -1");
  refused("CosineAnnealingLR", R"({"T_max": 0})", "t_max is 0");
  refused("CosineAnnealingWarmRestarts", R"({"T_0": 1, "T_mult": 0})", "t_mult is 0");
  refused("OneCycleLR", R"({"max_lr": 1, "total_steps": 0})", "total_steps is 0");
  refused("OneCycleLR", R"({"max_lr": 1, "total_steps": 5, "pct_start": 2})", "pct_start is 2");
  refused("CyclicLR", R"({"base_lr": 0.1, "max_lr": 1, "step_size_up": 0})", "step_size_up is 0");
  refused("linear", R"({"warmup": 3, "total": 2})", "warmup_steps is 3");
  refused("cosine_with_restarts", R"({"warmup": 0, "total": 2, "cycles": 0})", "num_cycles is 0");
  refused("constant_with_warmup", R"({"warmup": -1})", "warmup_steps is -1");
  refused("inverse_sqrt", R"({"warmup": 0, "timescale": 0})", "timescale is 0");
  PlateauSettings plateau;
  plateau.factor = 1;
  expect_error(Status::kInvalidArgument, "factor is 1", [&] { PlateauScheduler(rate_of_one(), plateau); });
  expect_error(Status::kInvalidArgument, "n_steps is 0",
               [&] { learning_rate_curve(LrScheduler(rate_of_one(), exponential_schedule(1)), 0); });
}

TEST(SchedulerRefuses, ACallbackThatGivesNoFactor) {
  const auto optimizer = rate_of_one();
  expect_error(Status::kInvalidArgument, "at step 0 is -2", [&] { along(optimizer, [](int64_t) { return -2.0; }); });
  LrScheduler scheduler = along(optimizer, [](int64_t step) { return step == 2 ? std::nan("") : 0.5; });
  scheduler.step();
  const c10::IValue before = scheduler.state_dict();
  expect_error(Status::kInvalidArgument, "at step 2 is nan", [&] { scheduler.step(); });
  EXPECT_TRUE(tree::equal(scheduler.state_dict(), before));
  EXPECT_EQ(optimizer->lr(0), 0.5);
}

TEST(SchedulerRefuses, PartsThatDoNotFit) {
  const auto optimizer = rate_of_one();
  const auto part = std::make_shared<LrScheduler>(optimizer, exponential_schedule(0.5));
  const auto plateau = std::make_shared<PlateauScheduler>(optimizer, PlateauSettings{});
  const auto stranger = std::make_shared<LrScheduler>(rate_of_one(), exponential_schedule(0.5));
  expect_error(Status::kInvalidArgument, "no scheduler", [&] { scheduler_parts({}); });
  expect_error(Status::kInvalidArgument, "scheduler 1 waits", [&] { scheduler_parts({part, plateau}); });
  expect_error(Status::kInvalidArgument, "scheduler 1 drives another", [&] { scheduler_parts({part, stranger}); });
  expect_error(Status::kInvalidArgument, "scheduler 1 is there twice", [&] { scheduler_parts({part, part}); });
  expect_error(Status::kInvalidArgument, "2 milestones", [&] { SequentialScheduler(scheduler_parts({part}), {1, 2}); });
  const auto other = std::make_shared<LrScheduler>(optimizer, exponential_schedule(0.5));
  expect_error(Status::kInvalidArgument, "ascending", [&] {
    SequentialScheduler(scheduler_parts({part, other}), {-1});
  });
}

}  // namespace scheduler_test
}  // namespace accel::optim
