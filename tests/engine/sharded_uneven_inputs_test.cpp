// SPDX-License-Identifier: Apache-2.0
// Sharded models on ranks with different numbers of batches: a rank whose inputs have ended takes part in the forwards,
// backwards and updates of the others.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <mutex>

#include "accelerator/join_uneven_inputs.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator_ranks.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/state/state.hpp"
#include "expect_error.hpp"
#include "fsdp_fixture.hpp"
#include "nn/module_walks.hpp"
#include "optim/clip.hpp"
#include "optim/rules/rules.hpp"

namespace accel::accelerator {
namespace sharded_uneven_inputs_test {

using parallel::fsdp_fixture::by_blocks;
using parallel::fsdp_fixture::make_model;
using parallel::fsdp_fixture::rows_of_step;
using parallel::fsdp_fixture::Shape;
using tests::AcceleratorPtr;

constexpr double kMaxNorm = 0.05, kMaxValue = 1e-3;

enum class Clips { kNot, kByNorm, kByValue };
struct Training {
  std::vector<int> batches;  // of each rank
  FsdpSettings fsdp = by_blocks();
  Shape shape = {};
  Clips clips = Clips::kNot;
  bool changes_lr = false;
  int backwards = 1;  // over the graph of each forward
  Precision precision = Precision::kNo;
};

at::Tensor batch_of(int rank, int step) { return rows_of_step(step).slice(0, rank * 2, rank * 2 + 2); }
double lr_of(int step) { return 0.02 / (1 + step); }

std::shared_ptr<optim::Optimizer> make_adam(const nn::Module& model) {
  const auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.02}});
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : model.parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  optimizer->add_group(trained, std::nullopt, std::nullopt);
  return optimizer;
}

// The sum of what the ranks with inputs compute, divided by the number of all ranks.
std::map<std::string, at::Tensor> train_alone(const Training& run) {
  const auto model = make_model(run.shape);
  const auto optimizer = make_adam(*model);
  const auto ranks = static_cast<int>(run.batches.size());
  const int steps = *std::max_element(run.batches.begin(), run.batches.end());
  for (int step = 0; step < steps; step++) {
    for (int rank = 0; rank < ranks; rank++)
      if (step < run.batches[static_cast<size_t>(rank)])
        (model->call(nn::Inputs{batch_of(rank, step)}).toTensor().square().mean() * run.backwards / ranks).backward();
    if (run.clips == Clips::kByNorm) optim::clip_gradients_by_norm(model->parameters(), kMaxNorm, 2);
    if (run.clips == Clips::kByValue) optim::clip_gradients_by_value(model->parameters(), kMaxValue);
    if (run.changes_lr) optimizer->set_lr(0, lr_of(step));
    optimizer->step();
    optimizer->zero_grad(true);
  }
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, parameter] : nn::named_parameters(*model)) parameters[name] = parameter.detach().clone();
  return parameters;
}

std::map<std::string, at::Tensor> train(const Training& run) {
  std::map<std::string, at::Tensor> result;
  std::mutex mutex;
  StateSettings state;
  state.mixed_precision = run.precision;
  tests::run_accelerators(static_cast<int>(run.batches.size()), state, [&](const AcceleratorPtr& accelerator) {
    const int rank = accelerator->state().process_index();
    const auto inner = make_model(run.shape);
    PrepareModelSettings preparation;
    preparation.fsdp = run.fsdp;
    const auto plain = make_adam(*inner);
    const auto model = accelerator->preparation().prepare_model(inner, preparation);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    JoinedInputs joined(accelerator, {model}, std::nullopt);
    tensor::BackwardOptions keep;
    keep.retain_graph = run.backwards > 1;
    for (int step = 0; step < run.batches[static_cast<size_t>(rank)]; step++) {
      const at::Tensor loss = model->call(nn::Inputs{batch_of(rank, step)}).toTensor().square().mean();
      for (int i = 0; i < run.backwards; i++) accelerator->backward().run(loss, keep);
      if (run.clips == Clips::kByNorm) accelerator->clipping().clip_gradients_by_norm(model, kMaxNorm, 2);
      if (run.clips == Clips::kByValue) accelerator->clipping().clip_gradients_by_value(model, kMaxValue);
      if (run.changes_lr) optimizer->set_lr(0, lr_of(step));
      optimizer->step();
      optimizer->zero_grad(true);
    }
    joined.finish();
    if (run.changes_lr) {
      EXPECT_DOUBLE_EQ(optimizer->lr(0), lr_of(*std::max_element(run.batches.begin(), run.batches.end()) - 1));
    }
    auto parameters = parallel::fsdp_fixture::whole_parameters(*require_prepared(model));
    const std::lock_guard<std::mutex> lock(mutex);
    if (rank == 0) result = std::move(parameters);
  });
  return result;
}

void expect_as_alone(const Training& run, double tolerance = 2e-5) {
  const auto actual = train(run), expected = train_alone(run);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, parameter] : expected)
    EXPECT_TRUE(at::allclose(actual.at(name), parameter, tolerance, tolerance)) << name;
}

TEST(ShardedUnevenInputs, TrainAsThoseThatAreLeft) {
  for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp})
    for (const auto& batches : std::vector<std::vector<int>>{{1, 4}, {5, 2}, {2, 5, 3}, {3, 1, 1, 4}}) {
      SCOPED_TRACE(text("strategy ", static_cast<int>(strategy), ", ", batches.size(), " ranks"));
      Training run{batches};
      run.fsdp.sharding_strategy = strategy;
      expect_as_alone(run);
    }
}

// Regression: with sharding and uneven inputs, ranks without inputs took gradients that the others had clipped by
// value, unclipped.
TEST(ShardedUnevenInputs, FollowWhatTheOthersDo) {
  Training run{{2, 5, 1}};
  for (const bool forward_prefetch : {false, true})
    for (const bool again : {false, true}) {
      run.fsdp.forward_prefetch = forward_prefetch;
      run.fsdp.activation_checkpointing = again;
      run.clips = again ? Clips::kByNorm : Clips::kByValue;
      run.changes_lr = forward_prefetch;
      expect_as_alone(run);
    }
}

TEST(ShardedUnevenInputs, FrozenTiedAndSharedParameters) {
  for (const Shape& shape :
       {Shape{true, false, false, false}, Shape{false, true, false, true}, Shape{false, false, true, false}}) {
    Training run{{1, 3}};
    run.shape = shape;
    expect_as_alone(run);
  }
}

// Regression: a rank whose inputs ended after a step with two backwards over one graph repeated that step without its
// forward.
TEST(ShardedUnevenInputs, SeveralBackwardsOverAKeptGraph) {
  for (const bool again : {false, true}) {
    Training run{{1, 3, 2}};
    run.fsdp.activation_checkpointing = again;
    run.backwards = 2;
    expect_as_alone(run);
  }
}

TEST(ShardedUnevenInputs, InBfloat16) {
  Training run{{2, 4}};
  run.precision = Precision::kBf16;
  expect_as_alone(run, 0.02);
}

TEST(ShardedUnevenInputs, Evaluate) {
  tests::run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    const int rank = accelerator->state().process_index();
    const auto inner = make_model();
    PrepareModelSettings preparation;
    preparation.fsdp = by_blocks();
    const auto model = accelerator->preparation().prepare_model(inner, preparation);
    const auto optimizer = accelerator->preparation().prepare_optimizer(make_adam(*inner));
    const at::Tensor expected = inner->children()[0].second->parameter(1).detach().clone();
    JoinedInputs joined(accelerator, {model}, std::nullopt);
    accelerator->backward().run(model->call(nn::Inputs{batch_of(rank, 0)}).toTensor().square().mean());
    const at::NoGradGuard no_grad;
    for (int step = 0; step < 1 + 3 * rank; step++) model->call(nn::Inputs{batch_of(rank, step)});
    joined.finish();
    EXPECT_TRUE(at::allclose(inner->children()[0].second->parameter(1), expected));
  });
}

// Each rank says so at once, without a wait for its deadline.
TEST(ShardedUnevenInputs, ARankWithoutAnyInputIsAnErrorOfAll) {
  tests::expect_error(Status::kInvalidState, "rank 1 had no inputs at all", [] { train({{2, 0, 1}}); });
}

TEST(ShardedUnevenInputs, OtherCallsThanTheOthersMakeAreAnError) {
  tests::expect_error(Status::kCollectiveMismatch, "do not call the same of forward, clipping and step next", [] {
    tests::run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
      const int rank = accelerator->state().process_index();
      const auto inner = make_model();
      PrepareModelSettings preparation;
      preparation.fsdp = by_blocks();
      const auto model = accelerator->preparation().prepare_model(inner, preparation);
      const auto optimizer = accelerator->preparation().prepare_optimizer(make_adam(*inner));
      JoinedInputs joined(accelerator, {model}, std::nullopt);
      accelerator->backward().run(model->call(nn::Inputs{batch_of(rank, 0)}).toTensor().square().mean());
      if (rank == 0) accelerator->clipping().clip_gradients_by_norm(model, kMaxNorm, 2);
      optimizer->step();
      joined.finish();
    });
  });
}

}  // namespace sharded_uneven_inputs_test
}  // namespace accel::accelerator
