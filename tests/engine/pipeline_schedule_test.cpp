// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules without a rank or a tensor: their lists, what the simulator proves of them, and the choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "expect_error.hpp"
#include "parallel/pipeline/schedule_choice.hpp"
#include "parallel/pipeline/schedule_simulator.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {
namespace pipeline_schedule_test {

using tests::message_of;

using Kind = PipelineAction::Kind;

PipelineCosts equal_costs(int stages, const StageCost& cost, double message = 0) {
  return {std::vector<StageCost>(static_cast<size_t>(stages), cost), message};
}

PipelineCosts random_costs(int stages, std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(0.5, 2);
  PipelineCosts costs{{}, seconds(random) / 10};
  for (int stage = 0; stage < stages; stage++)
    costs.stages.push_back({seconds(random), seconds(random), seconds(random)});
  return costs;
}

// Every schedule of these sizes.
std::vector<std::pair<std::string, PipelineSchedule>> schedules_of(int ranks, int micro_batches) {
  std::vector<std::pair<std::string, PipelineSchedule>> schedules;
  schedules.emplace_back("gpipe", gpipe_schedule(ranks, micro_batches));
  schedules.emplace_back("1f1b", one_forward_one_backward_schedule(ranks, micro_batches));
  for (const int stages : {2, 3, 4})
    if (can_interleave(ranks, micro_batches))
      schedules.emplace_back("interleaved", interleaved_schedule(ranks, micro_batches, stages));
  schedules.emplace_back("zero_bubble", zero_bubble_schedule(ranks, micro_batches));
  schedules.emplace_back("zero_bubble_v", zero_bubble_v_schedule(ranks, micro_batches));
  const PipelineShape loop{ranks, micro_batches, 1, StageOrder::kLoop}, v{ranks, micro_batches, 2, StageOrder::kV};
  schedules.emplace_back("greedy", greedy_schedule(loop, equal_costs(loop.stages(), {})));
  schedules.emplace_back("greedy V", greedy_schedule(v, equal_costs(v.stages(), {})));
  return schedules;
}

// Seconds in which the rank waits between its first action and its last one.
double gaps(const SimulatedStep::Rank& rank) {
  return rank.actions.back().end - rank.actions.front().begin - rank.busy;
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  const PipelineSchedule schedule = one_forward_one_backward_schedule(4, 6);
  EXPECT_EQ(text_of(schedule, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(text_of(schedule, 1), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  EXPECT_EQ(text_of(schedule, 2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  EXPECT_EQ(text_of(schedule, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(PipelineSchedule, Gpipe) { EXPECT_EQ(text_of(gpipe_schedule(2, 3), 1), "F0 F1 F2 B0 B1 B2"); }

TEST(PipelineSchedule, Interleaved) {
  const PipelineSchedule schedule = interleaved_schedule(2, 4, 2);
  EXPECT_EQ(text_of(schedule, 0), "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3");
  EXPECT_EQ(text_of(schedule, 1), "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3");
}

TEST(PipelineSchedule, ZeroBubble) {
  const PipelineSchedule schedule = zero_bubble_schedule(2, 4);
  EXPECT_EQ(text_of(schedule, 0), "F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3");
  EXPECT_EQ(text_of(schedule, 1), "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3");
}

TEST(PipelineSchedule, ZeroBubbleV) {
  const PipelineSchedule schedule = zero_bubble_v_schedule(2, 3);
  EXPECT_EQ(schedule.shape.rank_of(0), 0);
  EXPECT_EQ(schedule.shape.rank_of(1), 1);
  EXPECT_EQ(schedule.shape.rank_of(2), 1);
  EXPECT_EQ(schedule.shape.rank_of(3), 0);
  EXPECT_EQ(text_of(schedule, 0),
            "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 I3.1 W3.1 I0.0 W0.0 F3.2 I3.2 W3.2 I0.1 W0.1 I0.2 W0.2");
  EXPECT_EQ(text_of(schedule, 1),
            "F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 I1.1 I2.2 I1.2 W1.1 W2.2 W1.2");
}

TEST(PipelineSchedule, EachEndsWhateverTheSizesAndCosts) {
  std::mt19937 random(1);
  for (int ranks = 1; ranks <= 7; ranks++)
    for (int micro_batches = 1; micro_batches <= 16; micro_batches++)
      for (const auto& [name, schedule] : schedules_of(ranks, micro_batches)) {
        SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks, " + std::to_string(micro_batches) +
                     " micro-batches");
        const PipelineCosts costs = random_costs(schedule.shape.stages(), random);
        const SimulatedStep step = simulate(schedule, costs);
        double longest = 0;
        for (const auto& rank : step.ranks) longest = std::max(longest, rank.busy);
        EXPECT_GE(step.seconds, longest);
      }
}

TEST(PipelineSchedule, KeepsNoMoreThanItSays) {
  for (int ranks = 1; ranks <= 6; ranks++)
    for (int micro_batches = 1; micro_batches <= 12; micro_batches++)
      for (const auto& [name, schedule] : schedules_of(ranks, micro_batches)) {
        SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks, " + std::to_string(micro_batches) +
                     " micro-batches");
        const SimulatedStep step = simulate(schedule, equal_costs(schedule.shape.stages(), {}));
        const double kept = step.ranks[0].peak_in_flight, fewer = std::min(ranks, micro_batches);
        const int chunks = schedule.shape.stages_per_rank;
        if (name == "gpipe") {
          EXPECT_EQ(step.peak_in_flight(), micro_batches);
        } else if (name == "interleaved") {
          if (micro_batches % ranks == 0) {
            EXPECT_LE(kept, ranks * (1 + (ranks - 1.0) / (ranks * chunks)) + 1e-9);
          }
        } else {
          EXPECT_LE(step.peak_in_flight(), fewer + 1e-9);
          if (name == "1f1b") {
            EXPECT_EQ(kept, fewer);
          }
        }
      }
}

TEST(PipelineSchedule, KeepsNoMoreThanItMay) {
  for (int ranks = 1; ranks <= 5; ranks++)
    for (int limit = 1; limit <= 5; limit++) {
      const std::pair<const char*, PipelineSchedule> limited[] = {
          {"1f1b", one_forward_one_backward_schedule(ranks, 9, limit)},
          {"zero_bubble", zero_bubble_schedule(ranks, 9, limit)},
          {"greedy", greedy_schedule({ranks, 9}, equal_costs(ranks, {1, 1.5, 0.7}), limit)},
          {"greedy V", greedy_schedule({ranks, 9, 2, StageOrder::kV}, equal_costs(2 * ranks, {1, 1.5, 0.7}), limit)}};
      for (const auto& [name, schedule] : limited) {
        SCOPED_TRACE(std::string(name) + ", " + std::to_string(ranks) + " ranks, limit " + std::to_string(limit));
        EXPECT_LE(simulate(schedule, equal_costs(schedule.shape.stages(), {})).peak_in_flight(), limit);
      }
    }
}

TEST(PipelineSchedule, BubblesAreThoseOfTheFormulas) {
  const StageCost cost{1, 1.2, 0.7};
  const double whole = cost.forward + cost.input_backward + cost.weight_backward;
  for (int ranks = 1; ranks <= 6; ranks++)
    for (int micro_batches = ranks; micro_batches <= 3 * ranks; micro_batches++) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(micro_batches) + " micro-batches");
      const auto bubble = [&](const PipelineSchedule& schedule, double scale) {
        const StageCost part{cost.forward * scale, cost.input_backward * scale, cost.weight_backward * scale};
        return simulate(schedule, equal_costs(schedule.shape.stages(), part)).bubble(0);
      };
      EXPECT_NEAR(bubble(gpipe_schedule(ranks, micro_batches), 1), (ranks - 1) * whole, 1e-9);
      EXPECT_NEAR(bubble(one_forward_one_backward_schedule(ranks, micro_batches), 1), (ranks - 1) * whole, 1e-9);
      EXPECT_NEAR(bubble(zero_bubble_schedule(ranks, micro_batches), 1),
                  (ranks - 1) * (whole - 2 * cost.weight_backward), 1e-9);
      for (const int stages : {2, 3})
        if (micro_batches % ranks == 0) {
          EXPECT_NEAR(bubble(interleaved_schedule(ranks, micro_batches, stages), 1.0 / stages),
                      (ranks - 1) * whole / stages, 1e-9);
        }
    }
}

TEST(PipelineSchedule, VHasNoBubblesWhereAllTakesTheSameTime) {
  for (int ranks = 1; ranks <= 8; ranks++)
    for (const int micro_batches : {2 * ranks, 3 * ranks + 1}) {
      const SimulatedStep step =
          simulate(zero_bubble_v_schedule(ranks, micro_batches), equal_costs(2 * ranks, {1, 1, 1}));
      for (const auto& rank : step.ranks) EXPECT_NEAR(gaps(rank), 0, 1e-9) << ranks << " ranks";
    }
}

TEST(PipelineSchedule, BackwardsComeInOneOrder) {
  const auto backwards = [](const PipelineSchedule& schedule) {
    std::string line;
    for (const PipelineAction& action : schedule.ranks[0])
      if (action.kind != Kind::kForward) line += text_of(action, schedule.shape);
    return line;
  };
  EXPECT_EQ(backwards(gpipe_schedule(3, 5)), backwards(one_forward_one_backward_schedule(3, 5)));
}

TEST(PipelineScheduleSimulator, TimesMessagesBesideComputation) {
  // Two ranks and micro-batches: rank 1 gets the first output after 1 + 0.5.
  const SimulatedStep step = simulate(gpipe_schedule(2, 2), equal_costs(2, {1, 1, 1}, 0.5));
  EXPECT_EQ(step.ranks[1].actions[0].begin, 1.5);
  EXPECT_EQ(step.ranks[1].actions[1].begin, 2.5);
  EXPECT_EQ(step.ranks[0].actions[2].begin, 6);  // B0 of rank 1 ends at 5.5
  EXPECT_EQ(step.seconds, 10);
}

TEST(PipelineScheduleSimulator, NamesWhatIsWrong) {
  const PipelineCosts costs = equal_costs(2, {});
  PipelineSchedule crossed = one_forward_one_backward_schedule(2, 2);
  std::swap(crossed.ranks[0][1], crossed.ranks[0][2]);
  std::swap(crossed.ranks[1][0], crossed.ranks[1][2]);  // micro-batch 1 first, which rank 0 sends behind B0
  EXPECT_EQ(message_of([&] { simulate(crossed, costs); }), "rank 0 of the pipeline schedule waits for ever at B0");
  PipelineSchedule twice = gpipe_schedule(2, 2);
  twice.ranks[0][1].micro_batch = 0;
  EXPECT_EQ(message_of([&] { simulate(twice, costs); }), "the pipeline schedule has F0 twice on rank 0");
  PipelineSchedule elsewhere = gpipe_schedule(2, 2);
  elsewhere.ranks[0][1].stage = 1;
  EXPECT_EQ(message_of([&] { simulate(elsewhere, costs); }),
            "the pipeline schedule has F1 on rank 0, but the stage is on rank 1");
  PipelineSchedule half = zero_bubble_schedule(2, 2);
  half.ranks[1].pop_back();
  EXPECT_EQ(message_of([&] { simulate(half, costs); }),
            "the pipeline schedule has no backward of micro-batch 1 by stage 1");
}

// The gradient of the input is on its way while those of the weights are computed.
TEST(PipelineScheduleSimulator, WholeBackwardsMaySendEarly) {
  for (const int ranks : {1, 2, 4})
    for (const int micro_batches : {4, 8}) {
      PipelineCosts costs{std::vector<StageCost>(static_cast<size_t>(ranks), StageCost{2, 3, 1})};
      const PipelineSchedule schedule = one_forward_one_backward_schedule(ranks, micro_batches);
      EXPECT_NEAR(simulate(schedule, costs).bubble(0), (ranks - 1) * 6, 1e-9);
      costs.sends_early = true;
      EXPECT_NEAR(simulate(schedule, costs).bubble(0), (ranks - 1) * 5, 1e-9);
    }
}

// Halves that are apart cost more, so that a schedule which needs none may be the faster one.
TEST(PipelineScheduleChoice, CountsWhatHalvesCost) {
  const auto has_halves = [](const PipelineSchedule& schedule) {
    return text_of(schedule, 0).find('W') != std::string::npos;
  };
  PipelineCosts costs;
  costs.sends_early = true;
  const auto costs_of = [&costs](int stages) {
    PipelineCosts one = costs;
    one.stages.resize(stages == 2 ? 2 : 0, costs.stages.empty() ? StageCost{1, 1, 1} : costs.stages[0]);
    return one;
  };
  EXPECT_TRUE(has_halves(choose_schedule({"auto", 2, 8}, costs_of)));
  costs.stages = {{1, 1, 1, 0.2}};
  EXPECT_FALSE(has_halves(choose_schedule({"auto", 2, 8}, costs_of)));
}

TEST(PipelineScheduleChoice, AutoIsTheFastest) {
  std::mt19937 random(2);
  for (int round = 0; round < 60; round++) {
    const int ranks = 1 + static_cast<int>(random() % 5), micro_batches = 1 + static_cast<int>(random() % 12);
    const PipelineCosts halves = random_costs(2 * ranks, random);
    const auto costs_of = [&](int stages) {
      if (stages == 2 * ranks) return halves;
      PipelineCosts whole{{}, halves.message};
      for (size_t stage = 0; stage < halves.stages.size(); stage += 2) {
        const StageCost &first = halves.stages[stage], &second = halves.stages[stage + 1];
        whole.stages.push_back({first.forward + second.forward, first.input_backward + second.input_backward,
                                first.weight_backward + second.weight_backward});
      }
      return whole;
    };
    const PipelineSchedule chosen = choose_schedule({"auto", ranks, micro_batches}, costs_of);
    const double seconds = simulate(chosen, costs_of(chosen.shape.stages())).seconds;
    for (const auto& [name, schedule] : schedules_of(ranks, micro_batches))
      if (schedule.shape.stages_per_rank <= 2 && name.find("greedy") != 0) {
        EXPECT_LE(seconds, simulate(schedule, costs_of(schedule.shape.stages())).seconds * 1.003) << name;
      }
    const PipelineSchedule narrow = choose_schedule({"auto", ranks, micro_batches, 0, 2}, costs_of);
    EXPECT_LE(simulate(narrow, costs_of(narrow.shape.stages())).peak_in_flight(), 2);
  }
}

TEST(PipelineScheduleChoice, RefusesWhatCannotBe) {
  const auto refusal = [](const ScheduleRequest& request) {
    return message_of([&] { choose_schedule(request, [](int) { return PipelineCosts{}; }); });
  };
  EXPECT_EQ(refusal({"fast", 2, 4}),
            "the schedule \"fast\" is not known; expected \"gpipe\", \"1f1b\", \"interleaved\", \"zero_bubble\", "
            "\"zero_bubble_v\" or \"auto\"");
  EXPECT_EQ(refusal({"1f1b", 2, 0}), "micro_batches is 0; expected 1 or more");
  EXPECT_EQ(refusal({"gpipe", 2, 1 << 20}),
            "2 stages and 1048576 micro-batches have more messages than can be numbered; expected at most 1048575 "
            "stages times micro-batches");
  EXPECT_EQ(refusal({"gpipe", 2, 4, 2}),
            "stages_per_rank is 2, but a rank of the schedule \"gpipe\" has 1; leave it out, or take another schedule");
  EXPECT_EQ(
      refusal({"interleaved", 4, 9, 2}),
      "micro_batches 9 cannot be shared to 2 equal rounds of 4 ranks, as the schedule \"interleaved\" needs; take 8, "
      "or another schedule");
  EXPECT_EQ(refusal({"gpipe", 2, 8, 0, 3}),
            "the schedule \"gpipe\" keeps 8 micro-batches on a rank, more than max_in_flight 3; raise it, or take "
            "\"1f1b\", \"zero_bubble\" or \"auto\"");
  EXPECT_EQ(refusal({"auto", 2, 4}),
            "the model cannot be cut into stages for 2 ranks; take fewer ranks or stages_per_rank");
}

}  // namespace pipeline_schedule_test
}  // namespace accel::parallel
