// SPDX-License-Identifier: Apache-2.0
// Strategies, precisions, accumulation, activation checkpointing and numbers of ranks, each choice of three of them at
// least once: fifty updates have the losses of one process.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "accelerator/forward_precision.hpp"
#include "accelerator/prepared_model.hpp"
#include "base/error.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "fsdp_fixture.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"
#include "rank_threads.hpp"

namespace accel::parallel {
namespace sharded_combinations_test {

using fsdp_fixture::by_blocks;
using fsdp_fixture::make_model;
using fsdp_fixture::rows_of_step;

constexpr int kUpdates = 50;
constexpr int kRows = 12;
// Rounding of the sums of ranks, which are in another order; and of numbers of 8 bits, of the loss of single precision.
constexpr double kFloatTolerance = 1e-6, kBfloat16Tolerance = 0.03;

constexpr std::array<ShardingStrategy, 4> kStrategies = {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp,
                                                         ShardingStrategy::kNoShard, ShardingStrategy::kHybridShard};
constexpr std::array<size_t, 5> kChoices = {kStrategies.size(), 2, 2, 2, 4};

// Strategy, bfloat16, accumulation, activation checkpointing and ranks, each as the number of the choice.
using Combination = std::array<size_t, kChoices.size()>;
using Triple = std::array<std::pair<size_t, size_t>, 3>;  // fields with their choices

std::vector<Combination> all_combinations() {
  std::vector<Combination> all = {{}};
  for (size_t field = 0; field < kChoices.size(); field++) {
    std::vector<Combination> longer;
    for (Combination combination : all)
      for (combination[field] = 0; combination[field] < kChoices[field]; combination[field]++)
        longer.push_back(combination);
    all = std::move(longer);
  }
  return all;
}

std::set<Triple> triples_of(const Combination& combination) {
  std::set<Triple> triples;
  for (size_t a = 0; a < combination.size(); a++)
    for (size_t b = a + 1; b < combination.size(); b++)
      for (size_t c = b + 1; c < combination.size(); c++)
        triples.insert({{{a, combination[a]}, {b, combination[b]}, {c, combination[c]}}});
  return triples;
}

// Each time the combination with the most triples that none before it has.
std::vector<Combination> covering_combinations() {
  const std::vector<Combination> all = all_combinations();
  std::set<Triple> missing;
  for (const Combination& combination : all) missing.merge(triples_of(combination));
  std::vector<Combination> chosen;
  while (!missing.empty()) {
    const Combination* best = nullptr;
    size_t most = 0;
    for (const Combination& combination : all) {
      size_t found = 0;
      for (const Triple& triple : triples_of(combination)) found += missing.count(triple);
      if (found <= most) continue;
      most = found;
      best = &combination;
    }
    for (const Triple& triple : triples_of(*best)) missing.erase(triple);
    chosen.push_back(*best);
  }
  return chosen;
}

struct Training {
  explicit Training(const Combination& combination)
      : strategy(kStrategies[combination[0]]),
        in_bfloat16(combination[1] != 0),
        accumulation(combination[2] != 0 ? 3 : 1),
        checkpoints(combination[3] != 0),
        ranks(static_cast<int>(combination[4]) + 1) {}

  std::string name() const {
    return text("strategy ", static_cast<int>(strategy), in_bfloat16 ? ", bfloat16" : ", float32", ", accumulation ",
                accumulation, checkpoints ? ", activation checkpointing, " : ", ", ranks, " ranks");
  }

  ShardingStrategy strategy;
  bool in_bfloat16;
  int accumulation;
  bool checkpoints;
  int ranks;
};

// What the model cannot learn: a loss near 0 would be the difference of rounded numbers.
at::Tensor targets_of_step(int step) { return at::linspace(-9, 9, 2 * kRows).mul(3.1 + step).cos().view({kRows, 2}); }

// The mean loss of the ranks in each forward.
std::vector<double> losses_of(const Training& run) {
  std::vector<double> losses(static_cast<size_t>(kUpdates * run.accumulation), 0);
  std::mutex mutex;
  tests::run_ranks(run.ranks, [&](const std::shared_ptr<comm::Communicator>& all) {
    PrepareModelSettings settings;
    settings.fsdp = by_blocks();
    settings.fsdp.sharding_strategy = run.strategy;
    settings.fsdp.activation_checkpointing = run.checkpoints;
    if (run.in_bfloat16) settings.fsdp.param_dtype = std::string("bfloat16");
    accelerator::ForwardPrecision precision;
    precision.precision = run.in_bfloat16 ? Precision::kBf16 : Precision::kNo;
    const auto inner = make_model();
    const ParallelModelPtr parallel =
        parallelize(inner, fsdp_fixture::model_ranks(all, run.strategy), settings, at::kCPU);
    EXPECT_EQ(!nn::placements(*inner).empty(), run.ranks > 1 && run.strategy != ShardingStrategy::kNoShard);
    const auto model =
        std::make_shared<accelerator::PreparedModel>(parallel, precision, kernels::ComputePolicy{}, all->step_times());
    const auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.01}});
    optimizer->add_group(inner->parameters(), std::nullopt, std::nullopt);
    const int share = kRows / run.ranks;
    for (int step = 0; step < kUpdates * run.accumulation; step++) {
      const bool is_last = (step + 1) % run.accumulation == 0;
      parallel->set_gradient_sync(is_last);
      const int64_t first = all->rank() * share;
      const at::Tensor rows = rows_of_step(step).slice(0, first, first + share);
      const at::Tensor targets = targets_of_step(step).slice(0, first, first + share);
      const at::Tensor loss = (model->nn::Module::call(rows) - targets).square().mean();
      if (auto* const exchange = parallel->exchange()) exchange->expect_backward();
      torch::autograd::backward({loss / run.accumulation}, {});
      parallel->finish_step();
      const std::lock_guard<std::mutex> lock(mutex);
      losses[static_cast<size_t>(step)] += loss.item<double>() / run.ranks;
      if (!is_last) continue;
      optimizer->step();
      optimizer->zero_grad(true);
    }
  });
  return losses;
}

std::vector<double> losses_of_one_process(int accumulation) {
  Training run({});
  run.accumulation = accumulation;
  return losses_of(run);
}

TEST(ShardedCombinations, HaveTheLossesOfOneProcess) {
  const std::map<int, std::vector<double>> expected = {{1, losses_of_one_process(1)}, {3, losses_of_one_process(3)}};
  for (const auto& [accumulation, losses] : expected) ASSERT_LT(losses.back(), 0.7 * losses.front()) << accumulation;
  const std::vector<Combination> combinations = covering_combinations();
  EXPECT_GE(combinations.size(), 32);
  double largest_float = 0, largest_bfloat16 = 0;
  for (const Combination& combination : combinations) {
    const Training run(combination);
    SCOPED_TRACE(run.name());
    const std::vector<double> losses = losses_of(run);
    const std::vector<double>& of_one = expected.at(run.accumulation);
    ASSERT_EQ(losses.size(), of_one.size());
    double& largest = run.in_bfloat16 ? largest_bfloat16 : largest_float;
    for (size_t step = 0; step < losses.size(); step++) {
      const double difference = std::abs(losses[step] - of_one[step]) / of_one[step];
      largest = std::max(largest, difference);
      EXPECT_LT(difference, run.in_bfloat16 ? kBfloat16Tolerance : kFloatTolerance) << step;
    }
  }
  RecordProperty("combinations", static_cast<int>(combinations.size()));
  RecordProperty("largest_difference_float32", text(largest_float));
  RecordProperty("largest_difference_bfloat16", text(largest_bfloat16));
}

}  // namespace sharded_combinations_test
}  // namespace accel::parallel
