// SPDX-License-Identifier: Apache-2.0
// Steps of a pipeline that fail on a rank, beside shards and replicas: all ranks throw its error, and the next step
// trains as if there had been none.
#include <ATen/ops/allclose.h>
#include <c10/util/ScopeExit.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/generated/choices/auto_wrap_policy.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "expect_error.hpp"
#include "nn/call_hooks.hpp"
#include "pipelined_model_fixture.hpp"

namespace accel::parallel {
namespace pipelined_faults_test {

using namespace pipelined_model_tests;

enum class Where { kForward, kBackward };

// A block of a rank of a pipeline fails in one of its calls.
struct Fault {
  Where where = Where::kForward;
  int call = 0;
  bool is_everywhere = false;  // in all pipelines, instead of the first alone
  int64_t rank = 1;
};

// Far above a step, in which nobody waits for a rank that failed.
void in_time(StateSettings& state, int /*rank*/) { state.timeout_ms = 20000; }

class FailingBlock {
 public:
  FailingBlock(const AcceleratorPtr& accelerator, nn::Module& model, const Fault& fault) : left_(fault.call + 1) {
    const state::ParallelGroups& groups = accelerator->state().groups();
    fails_ = groups.mesh()->coordinate("pipeline") == fault.rank &&
             (fault.is_everywhere || groups.data_parallel()->rank() == 0);
    const auto hook = [this](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
      if (fails_ && --left_ == 0) throw Error(Status::kShapeMismatch, "the rows are odd");
      return std::nullopt;
    };
    nn::CallHooks& hooks = own_block(model)->hooks();
    if (fault.where == Where::kForward)
      hooks.add_pre_hook(hook);
    else
      hooks.add_backward_pre_hook(hook);
  }
  FailingBlock(const FailingBlock&) = delete;
  FailingBlock& operator=(const FailingBlock&) = delete;

 private:
  bool fails_;
  int left_;  // calls until it fails, once
};

void expect_recovery(const MeshSizes& mesh, const Case& test, const PrepareModelSettings& settings,
                     const std::vector<Fault>& faults) {
  SCOPED_TRACE(name_of(test));
  const Trained expected = train_alone(test, mesh.replicas * mesh.shards);
  for (const Fault& fault : faults) {
    SCOPED_TRACE((fault.where == Where::kForward ? "forward " : "backward ") + std::to_string(fault.call));
    on_mesh(
        mesh,
        [&](const AcceleratorPtr& accelerator) {
          Training training(accelerator, test, settings);
          const FailingBlock failing(accelerator, *training.model(), fault);
          const std::string said = tests::message_of([&] { training.step(0); });
          EXPECT_NE(said.find("the rows are odd"), std::string::npos) << said;
          training.zero_grad();
          for (int64_t step = 0; step < kSteps; step++)
            EXPECT_NEAR(training.step(step).second, expected.norms[static_cast<size_t>(step)], kTolerance);
          expect_weights(training.inner(), expected.weights);
        },
        in_time);
  }
}

const std::vector<Fault> kOfOneRank{
    {Where::kForward, 0}, {Where::kForward, 2}, {Where::kBackward, 0}, {Where::kBackward, 3}};

TEST(PipelinedFaults, ShardsAreTrainedOn) {
  for (const char* schedule : {"1f1b", "zero_bubble", "interleaved"}) {
    const Case test{schedule, 4, true, 1, true};
    expect_recovery({1, 2, 1, 1, 1, 2}, test, settings_of(test), kOfOneRank);
  }
}

// What an earlier micro-batch of the window has left is gone, too.
TEST(PipelinedFaults, ShardsThatAccumulate) {
  const Case test{"1f1b", 4, true, 2, true};
  expect_recovery({1, 2, 1, 1, 1, 2}, test, settings_of(test), {{Where::kForward, 5}, {Where::kBackward, 5}});
}

PrepareModelSettings with_full_shards(const Case& test) {
  PrepareModelSettings settings = settings_of(test);
  settings.fsdp.sharding_strategy = ShardingStrategy::kFullShard;
  return settings;
}

// Ranks gather in each micro-batch, all of whose pipelines fail at once.
TEST(PipelinedFaults, FullShardsWhereAllPipelinesFail) {
  const Case test{"1f1b", 4, true, 1, true};
  expect_recovery({1, 2, 1, 1, 1, 2}, test, with_full_shards(test),
                  {{Where::kForward, 1, true}, {Where::kBackward, 0, true}, {Where::kBackward, 3, true}});
}

// The rank that fails gathers with those that go on until they hear of it.
TEST(PipelinedFaults, FullShardsAreTrainedOn) {
  for (const char* schedule : {"1f1b", "gpipe", "zero_bubble", "interleaved"}) {
    const Case test{schedule, 4, true, 1, true};
    expect_recovery({1, 2, 1, 1, 1, 2}, test, with_full_shards(test), kOfOneRank);
  }
}

TEST(PipelinedFaults, FullShardsWhoseFirstStageFails) {
  const Case test{"1f1b", 4, false, 1, true};
  expect_recovery({1, 2, 1, 1, 1, 2}, test, with_full_shards(test),
                  {{Where::kForward, 0, false, 0}, {Where::kForward, 3, false, 0}, {Where::kBackward, 3, false, 0}});
}

// Blocks have groups of their own, some of which are on their way when a rank fails.
TEST(PipelinedFaults, FullShardsThatAreGatheredAhead) {
  const Case test{"1f1b", 4, true, 1, true};
  PrepareModelSettings settings = with_full_shards(test);
  settings.fsdp.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  settings.fsdp.transformer_cls_names_to_wrap = std::string("GPT2Block");
  settings.fsdp.forward_prefetch = true;
  settings.fsdp.limit_all_gathers = false;
  expect_recovery({1, 2, 1, 1, 1, 2}, test, settings, kOfOneRank);
  settings.fsdp.activation_checkpointing = true;
  expect_recovery({1, 2, 1, 1, 1, 2}, test, settings, {{Where::kForward, 2}, {Where::kBackward, 1}});
}

// Between a forward and its backward two ranks of four keep the parameters.
TEST(PipelinedFaults, FullShardsThatFewRanksKeep) {
  const Case test{"1f1b", 3, true, 1, true};
  PrepareModelSettings settings = with_full_shards(test);
  settings.fsdp.reshard_group_size = 2;
  expect_recovery({1, 4, 1, 1, 1, 2}, test, settings, {{Where::kForward, 1}, {Where::kBackward, 1}});
}

// What an earlier batch of the window has left is gone, too.
TEST(PipelinedFaults, FullShardsThatAccumulate) {
  const Case test{"1f1b", 4, true, 2, true};
  expect_recovery({1, 2, 1, 1, 1, 2}, test, with_full_shards(test), {{Where::kForward, 5}, {Where::kBackward, 5}});
}

// One rank fails alone in an evaluation between two batches of a window, whose gradients stay.
TEST(PipelinedFaults, ShardsAreEvaluatedOn) {
  const Case test{"1f1b", 4, true, 2, true};
  const at::Tensor batch = inputs_of(tokens(kRows, 5));
  const at::Tensor evaluated = gpt2(true)->call(batch).detach();
  const Trained expected = train_alone(test, 2);
  for (const ShardingStrategy strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp})
    for (const int64_t failing : {0, 1}) {
      PrepareModelSettings settings = settings_of(test);
      settings.fsdp.sharding_strategy = strategy;
      on_mesh(
          {1, 2, 1, 1, 1, 2},
          [&](const AcceleratorPtr& accelerator) {
            Training training(accelerator, test, settings);
            const int64_t rank = accelerator->state().groups().data_parallel()->rank();
            const bool is_first = accelerator->state().groups().mesh()->coordinate("pipeline") == 0;
            const auto evaluate = [&] {
              training.model()->train(false);
              const auto restored = c10::make_scope_exit([&] { training.model()->train(true); });
              return training.model()->call(is_first ? nn::Inputs{batch} : nn::Inputs{});
            };
            const auto check = [&] {
              const c10::IValue output = evaluate();
              ASSERT_EQ(output.isTensor(), !is_first);
              if (!is_first) {
                EXPECT_TRUE(at::allclose(output.toTensor(), evaluated, kTolerance, kTolerance));
              }
            };
            check();
            {
              const accelerator::MicroBatch micro_batch(accelerator, {training.model()});
              training.backward(rows_of(test, 0, 0, rank));
            }
            const FailingBlock failing_block(accelerator, *training.model(),
                                             {Where::kForward, 1, /*is_everywhere=*/false, failing});
            const std::string said = tests::message_of([&] { evaluate(); });
            EXPECT_NE(said.find("the rows are odd"), std::string::npos) << said;
            check();
            const accelerator::MicroBatch micro_batch(accelerator, {training.model()});
            training.backward(rows_of(test, 0, 1, rank));
            const auto norm = accelerator->clipping().clip_gradients_by_norm(training.model(), kLargestNorm, 2);
            ASSERT_TRUE(norm.has_value());
            EXPECT_NEAR(norm->item<double>(), expected.norms[0], kTolerance);
          },
          in_time);
    }
}

// Replicas of shards, and a model of one stage.
TEST(PipelinedFaults, FullShardsOfReplicasAndOfOneStage) {
  const Case test{"1f1b", 4, true, 1, true};
  PrepareModelSettings settings = with_full_shards(test);
  settings.fsdp.sharding_strategy = ShardingStrategy::kHybridShard;
  expect_recovery({2, 2, 1, 1, 1, 2}, test, settings, {{Where::kForward, 1}, {Where::kBackward, 1}});
  expect_recovery({1, 2, 1}, test, with_full_shards(test),
                  {{Where::kForward, 1, false, 0}, {Where::kBackward, 1, false, 0}});
}

// The exchange is behind the backwards, or beside the last one.
TEST(PipelinedFaults, ReplicasAreTrainedOn) {
  for (const char* schedule : {"zero_bubble", "1f1b", "gpipe"}) {
    const Case test{schedule, 4};
    expect_recovery({2, 1, 1, 1, 1, 2}, test, settings_of(test), kOfOneRank);
  }
}

// The last backward of the second stage, with its exchange, is over before the first stage comes to its own.
TEST(PipelinedFaults, ReplicasWhoseFirstStageFailsLast) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    const Case test{schedule, 4};
    expect_recovery({2, 1, 1, 1, 1, 2}, test, settings_of(test),
                    {{Where::kBackward, 3, false, 0}, {Where::kBackward, 3, true, 0}});
  }
}

// The other pipeline counts its labels, and hears of it.
TEST(PipelinedFaults, LabelsThatOnePipelineCannotCount) {
  const Case test{"1f1b", 4};
  on_mesh({2, 1, 1, 1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    const int64_t rank = accelerator->state().groups().data_parallel()->rank();
    PipelineLoss sum;
    sum.is_sum = true;
    sum.of_output = [](const c10::IValue& output, const c10::IValue& targets) {
      return tensor::cross_entropy(output.toTensor(), targets.toTensor(), /*sum=*/true);
    };
    const at::Tensor rows = rows_of(test, 0, 0, rank);
    sum.count = [rank](const c10::IValue& targets) { return rank == 0 ? -1 : targets.toTensor().numel(); };
    const std::string said = tests::message_of([&] { training.backward(rows, sum); });
    EXPECT_NE(said.find("no int64 labels to count"), std::string::npos) << said;
    training.zero_grad();
    sum.count = [](const c10::IValue& targets) { return targets.toTensor().numel(); };
    EXPECT_GT(training.backward(rows, sum), 0);
  });
}

}  // namespace pipelined_faults_test
}  // namespace accel::parallel
