// SPDX-License-Identifier: Apache-2.0
// Cuts of chains into stages, against all cuts.
#include "parallel/pipeline/cut/stage_cut.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "expect_error.hpp"

namespace accel::parallel {
namespace stage_cut_test {

using tests::message_of;

std::vector<ChainPart> chain_of(const std::vector<double>& costs) {
  std::vector<ChainPart> parts;
  for (const double cost : costs)
    parts.push_back({"h." + std::to_string(parts.size()), cost, static_cast<int64_t>(cost)});
  return parts;
}

double largest_of(const std::vector<double>& costs) { return *std::max_element(costs.begin(), costs.end()); }

double squares_of(const std::vector<double>& costs) {
  double sum = 0;
  for (const double cost : costs) sum += cost * cost;
  return sum;
}

// Calls the visitor with each cut of so many parts into so many stages.
void visit_cuts(size_t parts, size_t stages, StageBegins& begins, const std::function<void()>& visit) {
  if (begins.size() == stages) return visit();
  for (size_t begin = begins.back() + 1; begin < parts; begin++) {
    begins.push_back(begin);
    visit_cuts(parts, stages, begins, visit);
    begins.pop_back();
  }
}

TEST(StageCut, IsTheBestOfAll) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; round++) {
    const size_t n_parts = 1 + random() % 9, n_stages = 1 + random() % n_parts;
    std::vector<double> costs;
    for (size_t part = 0; part < n_parts; part++) costs.push_back(static_cast<double>(random() % 9));
    const std::vector<ChainPart> parts = chain_of(costs);
    std::vector<int64_t> max_bytes;
    for (size_t stage = 0; stage < n_stages && round % 2 == 1; stage++)
      max_bytes.push_back(static_cast<int64_t>(4 + random() % 30));

    double largest = -1, squares = 0;
    StageBegins begins{0};
    visit_cuts(n_parts, n_stages, begins, [&] {
      const std::vector<double> cut = stage_costs(parts, begins);
      for (size_t stage = 0; stage < max_bytes.size(); stage++)
        if (cut[stage] > static_cast<double>(max_bytes[stage])) return;
      if (largest >= 0 && (largest_of(cut) > largest || (largest_of(cut) == largest && squares_of(cut) >= squares)))
        return;
      largest = largest_of(cut);
      squares = squares_of(cut);
    });
    if (largest < 0) {
      EXPECT_NE(message_of([&] { cut_by_cost(parts, static_cast<int>(n_stages), max_bytes); }), "no error");
      continue;
    }
    const StageBegins cut = cut_by_cost(parts, static_cast<int>(n_stages), max_bytes);
    ASSERT_EQ(cut.size(), n_stages);
    EXPECT_TRUE(cut[0] == 0 && std::is_sorted(cut.begin(), cut.end()));
    EXPECT_EQ(largest_of(stage_costs(parts, cut)), largest);
    EXPECT_EQ(squares_of(stage_costs(parts, cut)), squares);
    for (size_t stage = 0; stage < max_bytes.size(); stage++)
      EXPECT_LE(stage_costs(parts, cut)[stage], static_cast<double>(max_bytes[stage]));
  }
}

TEST(StageCut, AHeadThatIsExpensiveGetsFewBlocks) {
  EXPECT_EQ(cut_by_cost(chain_of({1, 10, 10, 10, 10, 25}), 2), (StageBegins{0, 4}));
  EXPECT_EQ(cut_by_cost(chain_of({0, 1, 1, 1, 1, 0}), 4), (StageBegins{0, 2, 3, 4}));
}

TEST(StageCut, IsDoneAsAProgramSays) {
  const std::vector<ChainPart> parts = chain_of({1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(cut_as_said("2,3,3", parts, 3), (StageBegins{0, 2, 5}));
  EXPECT_EQ(cut_as_said("h.3, h.4", parts, 3), (StageBegins{0, 3, 4}));
  EXPECT_EQ(cut_as_said("8", parts, 1), (StageBegins{0}));
  EXPECT_TRUE(is_cost_kind("flops"));
  EXPECT_FALSE(is_cost_kind("h.4"));
}

TEST(StageCut, RefusesWhatIsNotTheChain) {
  const std::vector<ChainPart> parts = chain_of({1, 1, 1, 1});
  const auto refusal = [&parts](const std::string& split, int stages) {
    return message_of([&] { cut_as_said(split, parts, stages); });
  };
  EXPECT_EQ(refusal("2,3", 2), "split \"2,3\" has 5 parts; expected 1 or more a stage, 4 together");
  EXPECT_EQ(refusal("0,4", 2), "split \"0,4\" has 4 parts; expected 1 or more a stage, 4 together");
  EXPECT_EQ(refusal("2,2", 3), "split \"2,2\" makes 2 stages; expected 3");
  EXPECT_EQ(refusal("h.9", 2),
            "split \"h.9\" names \"h.9\", which is not a part of the model; expected a name such as \"h.3\", counts of "
            "parts, \"parameters\", \"flops\" or \"measured\"");
  EXPECT_EQ(
      refusal("h.2,h.1", 3),
      "split \"h.2,h.1\" names \"h.1\" behind or with a part that begins no later; give the stages in the order of "
      "the model");
  EXPECT_EQ(message_of([&] { cut_by_cost(parts, 5); }),
            "the model has 4 parts, which cannot be 5 stages; take fewer ranks or stages_per_rank");
}

TEST(StageCut, NamesTheStageThatDoesNotFit) {
  const std::vector<ChainPart> parts = chain_of({1, 5, 2, 2});
  const auto refusal = [&parts](const std::vector<int64_t>& max_bytes) {
    return message_of([&] { cut_by_cost(parts, static_cast<int>(max_bytes.size()), max_bytes); });
  };
  EXPECT_EQ(refusal({6, 3}),
            "stage 1 of 2, 'h.2' to 'h.3', needs 4 bytes for its parameters, and max_memory allows 3; expected more "
            "stages, or more memory for it");
  EXPECT_EQ(refusal({1, 4, 9}),
            "stage 1 of 3, 'h.1' to 'h.1', needs 5 bytes for its parameters, and max_memory allows 4; expected more "
            "stages, or more memory for it");
  EXPECT_EQ(cut_by_cost(parts, 2, {10, 2}), (StageBegins{0, 3}));
  EXPECT_NE(message_of([&] {
              require_room(parts, {0, 1}, {1, 8});
            }).find("stage 1 of 2, 'h.1' to 'h.3', needs 9 bytes"),
            std::string::npos);
  EXPECT_EQ(message_of([&] { require_room(parts, {0, 1}, {}); }), "no error");
}

TEST(StageCut, LimitsAreSizes) {
  EXPECT_EQ(read_stage_limits("", 2), std::vector<int64_t>());
  EXPECT_EQ(read_stage_limits("1KiB", 3), (std::vector<int64_t>{1024, 1024, 1024}));
  EXPECT_EQ(read_stage_limits("1GB, 500", 2), (std::vector<int64_t>{1000000000, 500}));
  EXPECT_EQ(message_of([] { read_stage_limits("1KiB,2KiB", 3); }),
            "max_memory \"1KiB,2KiB\" has 2 sizes; expected one, or one for each of 3 stages");
  EXPECT_NE(message_of([] { read_stage_limits("much", 1); }).find("size 'much' is not known"), std::string::npos);
}

}  // namespace stage_cut_test
}  // namespace accel::parallel
