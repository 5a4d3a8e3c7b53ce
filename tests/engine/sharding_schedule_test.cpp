// SPDX-License-Identifier: Apache-2.0
// The schedule of a sharded model, without a model: lists of actions from events.
#include "parallel/schedule/sharding_schedule.hpp"
#include "config/generated/choices/backward_prefetch.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

namespace accel::parallel {
namespace sharding_schedule_test {

// "start 1, gather 0, release 2": the actions as a reader says them.
std::string text_of(const ShardingActions& actions) {
  static constexpr const char* kNames[] = {"start",  "gather", "release", "release for backward",
                                           "reduce", "finish", "keep",    "reduce kept"};
  std::string result;
  for (const ShardingAction& action : actions)
    result += (result.empty() ? "" : ", ") + std::string(kNames[static_cast<size_t>(action.kind)]) + " " +
              std::to_string(action.group);
  return result;
}

// The groups 0 and 1 are blocks of the model, whose group is 2.
const std::vector<size_t> kRegistered{2, 0, 1};

FsdpSettings settings_of(bool forward_prefetch, BackwardPrefetch backward_prefetch) {
  FsdpSettings settings;
  settings.sharding_strategy = ShardingStrategy::kFullShard;
  settings.forward_prefetch = forward_prefetch;
  settings.backward_prefetch = backward_prefetch;
  return settings;
}

constexpr ModuleOutput kRecorded{/*is_recorded=*/true, /*has_parameters=*/false};

// A step of a pipeline: forwards and backwards in any order.
TEST(ShardingSchedule, ParametersStayThroughMicroBatches) {
  FsdpSettings settings = settings_of(false, BackwardPrefetch::kNoPrefetch);
  settings.sharding_strategy = ShardingStrategy::kShardGradOp;
  ShardingSchedule schedule(kRegistered, settings);
  EXPECT_EQ(text_of(schedule.set_micro_batches(true)), "release 0, release 1, release 2, start 2, start 0, start 1");
  for (int micro_batch = 0; micro_batch < 2; micro_batch++) {
    EXPECT_EQ(text_of(schedule.begin_forward(true)), "");
    EXPECT_EQ(text_of(schedule.begin_module(0)), "gather 0");
    EXPECT_EQ(text_of(schedule.end_module(0, {})), "");
  }
  EXPECT_TRUE(schedule.begin_backward(0));
  EXPECT_EQ(text_of(schedule.complete_gradients(0, false, false)), "keep 0");
  EXPECT_EQ(text_of(schedule.end_backward(false)), "");
  EXPECT_EQ(text_of(schedule.set_micro_batches(false)), "release 0, release 1, release 2");
  EXPECT_EQ(text_of(schedule.begin_forward(true)), "release 0, release 1, release 2");
  ShardingSchedule full(kRegistered, settings_of(false, BackwardPrefetch::kNoPrefetch));
  EXPECT_EQ(text_of(full.set_micro_batches(true)), "release 0, release 1, release 2");
}

TEST(ShardingSchedule, AStepOfABlocksModel) {
  ShardingSchedule schedule(kRegistered, settings_of(false, BackwardPrefetch::kBackwardPre));
  EXPECT_EQ(text_of(schedule.begin_forward(true)), "release 0, release 1, release 2");
  EXPECT_EQ(text_of(schedule.begin_module(2)), "gather 2");
  EXPECT_EQ(text_of(schedule.begin_module(0)), "gather 0");
  EXPECT_EQ(text_of(schedule.end_module(0, kRecorded)), "release for backward 0");
  EXPECT_EQ(text_of(schedule.begin_module(1)), "gather 1");
  EXPECT_EQ(text_of(schedule.end_module(1, kRecorded)), "release for backward 1");
  EXPECT_EQ(text_of(schedule.end_module(2, kRecorded)), "") << "its backward comes next";
  EXPECT_TRUE(schedule.begin_backward(2));
  EXPECT_EQ(text_of(schedule.begin_module_backward(2)), "gather 2, start 1");
  EXPECT_EQ(text_of(schedule.begin_module_backward(1)), "gather 1, start 0");
  EXPECT_EQ(text_of(schedule.complete_gradients(1, true, false)), "reduce 1, release 1");
  EXPECT_EQ(text_of(schedule.begin_module_backward(0)), "gather 0");
  EXPECT_EQ(text_of(schedule.complete_gradients(0, true, false)), "finish 1, reduce 0, release 0");
  EXPECT_FALSE(schedule.begin_backward(2));
  EXPECT_EQ(
      text_of(schedule.end_backward(true)),
      "finish 0, reduce 2, finish 2, reduce kept 0, reduce kept 1, reduce kept 2, release 0, release 1, release 2");
  EXPECT_EQ(text_of(schedule.end_backward(true)), "") << "it has ended";
}

// Regression: `forward_prefetch` had no effect in the first forward and in each forward behind a backward.
TEST(ShardingSchedule, AForwardIsPredictedFromTheFirstOneOn) {
  ShardingSchedule schedule(kRegistered, settings_of(true, BackwardPrefetch::kNoPrefetch));
  schedule.begin_forward(true);
  EXPECT_EQ(text_of(schedule.begin_module(2)), "gather 2, start 0") << "the order of registration";
  EXPECT_EQ(text_of(schedule.begin_module(1)), "gather 1") << "not the one that was expected";
  EXPECT_EQ(text_of(schedule.begin_module(0)), "gather 0") << "nothing is predicted behind that";
  schedule.begin_backward(2);
  schedule.end_backward(true);
  schedule.begin_forward(true);
  EXPECT_EQ(text_of(schedule.begin_module(2)), "gather 2, start 1") << "as the forward before";
  EXPECT_EQ(text_of(schedule.begin_module(1)), "gather 1, start 0");
  EXPECT_EQ(text_of(schedule.begin_module(0)), "gather 0") << "nothing of the next forward";
}

// Regression: the first backward behind an evaluation gathered groups again that the evaluation had used.
TEST(ShardingSchedule, ABackwardLeavesOutForwardsWithoutOne) {
  ShardingSchedule schedule(kRegistered, settings_of(false, BackwardPrefetch::kBackwardPre));
  for (const bool records : {false, true}) {
    schedule.begin_forward(records);
    for (const size_t group : kRegistered) schedule.begin_module(group);
    for (const size_t group : {0, 1, 2}) schedule.end_module(group, {records, /*has_parameters=*/false});
  }
  EXPECT_EQ(text_of(schedule.begin_module_backward(2)), "gather 2, start 1");
  EXPECT_EQ(text_of(schedule.begin_module_backward(1)), "gather 1, start 0");
  EXPECT_EQ(text_of(schedule.begin_module_backward(0)), "gather 0");
}

TEST(ShardingSchedule, FrozenParametersStayUntilTheGradientsOfInputs) {
  ShardingSchedule schedule(kRegistered, settings_of(false, BackwardPrefetch::kNoPrefetch));
  schedule.begin_forward(true);
  for (const size_t group : kRegistered) schedule.begin_module(group);
  schedule.begin_module_backward(1);
  EXPECT_EQ(text_of(schedule.complete_gradients(1, true, true)), "reduce 1");
  EXPECT_EQ(text_of(schedule.complete_inputs(1, true)), "release 1");
  schedule.begin_module_backward(0);
  EXPECT_EQ(text_of(schedule.complete_inputs(0, false)), "");
  EXPECT_EQ(text_of(schedule.complete_gradients(0, true, true)), "finish 1, reduce 0, release 0");
}

TEST(ShardingSchedule, GradientsAreKeptWithoutAnExchange) {
  ShardingSchedule schedule(kRegistered, settings_of(false, BackwardPrefetch::kBackwardPost));
  schedule.begin_forward(true);
  for (const size_t group : kRegistered) schedule.begin_module(group);
  schedule.begin_module_backward(1);
  EXPECT_EQ(text_of(schedule.complete_gradients(1, false, false)), "keep 1, release 1, start 0");
  EXPECT_EQ(text_of(schedule.end_backward(false)), "release 0, release 1, release 2");
}

// Whatever modules are called: each is gathered when it is used, each reduction that is started ends, and at the end
// nothing is gathered.
TEST(ShardingSchedule, RandomStepsLeaveNothingBehind) {
  std::mt19937 random(3);
  using Kind = ShardingAction::Kind;
  for (int turn = 0; turn < 300; turn++) {
    FsdpSettings settings = settings_of(random() % 2 == 0, static_cast<BackwardPrefetch>(1 + random() % 3));
    settings.limit_all_gathers = random() % 2 == 0;
    if (random() % 3 == 0) settings.sharding_strategy = ShardingStrategy::kShardGradOp;
    const size_t groups = 1 + random() % 5;
    std::vector<size_t> registered{groups - 1};
    for (size_t group = 0; group + 1 < groups; group++) registered.push_back(group);
    ShardingSchedule schedule(registered, settings);
    std::set<size_t> gathered, reducing;
    const auto execute = [&](const ShardingActions& actions) {
      for (const ShardingAction& action : actions) {
        if (action.kind == Kind::kStartUnshard || action.kind == Kind::kUnshard) gathered.insert(action.group);
        if (action.kind == Kind::kReshard || action.kind == Kind::kReshardForBackward) gathered.erase(action.group);
        if (action.kind == Kind::kStartReduce) {
          EXPECT_TRUE(reducing.insert(action.group).second);
          EXPECT_EQ(reducing.size(), 1U) << "one at a time";
        }
        if (action.kind == Kind::kFinishReduce) {
          EXPECT_EQ(reducing.erase(action.group), 1U);
        }
      }
    };
    for (int step = 0; step < 3; step++) {
      const bool exchange = random() % 4 > 0;
      execute(schedule.begin_forward(true));
      std::vector<size_t> called{groups - 1};
      execute(schedule.begin_module(groups - 1));
      for (size_t call = random() % 6; call > 0 && groups > 1; call--) {
        called.push_back(random() % (groups - 1));
        execute(schedule.begin_module(called.back()));
        EXPECT_EQ(gathered.count(called.back()), 1U);
        execute(schedule.end_module(called.back(), kRecorded));
      }
      execute(schedule.end_module(groups - 1, kRecorded));
      std::set<size_t> completed;
      for (size_t i = called.size(); i-- > 0;) {
        execute(schedule.begin_module_backward(called[i]));
        EXPECT_EQ(gathered.count(called[i]), 1U);
        const bool is_last = std::find(called.begin(), called.begin() + static_cast<int64_t>(i), called[i]) ==
                             called.begin() + static_cast<int64_t>(i);
        if (is_last && random() % 5 > 0 && completed.insert(called[i]).second)
          execute(schedule.complete_gradients(called[i], exchange, /*has_frozen=*/false));
      }
      execute(schedule.end_backward(exchange));
      EXPECT_TRUE(gathered.empty());
      EXPECT_TRUE(reducing.empty());
    }
  }
}

}  // namespace sharding_schedule_test
}  // namespace accel::parallel
