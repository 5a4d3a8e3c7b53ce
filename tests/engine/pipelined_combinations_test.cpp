// SPDX-License-Identifier: Apache-2.0
// Models in stages beside other kinds of parallelism: split sequences, split layers, shards, accumulation, other rows.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "accelerator/sharding_choice.hpp"
#include "comm/communicator.hpp"
#include "comm/record/flight_record.hpp"
#include "config/generated/choices/context_method.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/parallelism/tensor_parallel.hpp"
#include "expect_error.hpp"
#include "parallel/context/context_scope.hpp"
#include "pipelined_model_fixture.hpp"

namespace accel::parallel {
namespace pipelined_combinations_test {

using namespace pipelined_model_tests;

using Change = std::function<void(PrepareModelSettings& settings)>;

void expect_equality(const MeshSizes& mesh, const std::vector<Case>& tests, const Change& change = {}) {
  for (const Case& test : tests) {
    SCOPED_TRACE(name_of(test));
    const Trained expected = train_alone(test, mesh.replicas * mesh.shards);
    PrepareModelSettings settings = settings_of(test);
    if (change) change(settings);
    on_mesh(mesh, [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, test, settings);
      for (int64_t step = 0; step < kSteps; step++)
        EXPECT_NEAR(training.step(step).second, expected.norms[static_cast<size_t>(step)], kTolerance);
      expect_weights(training.inner(), expected.weights);
    });
  }
}

TEST(PipelinedCombinations, SplitLayersByEachSchedule) {
  expect_equality(
      {1, 1, 2, 1, 1, 2},
      {{"gpipe", 4, false, 2}, {"1f1b", 1}, {"zero_bubble", 3, true, 2}, {"zero_bubble_v", 4}, {"auto", 8}});
}

int64_t bytes_sent(const comm::Communicator& ranks) {
  int64_t bytes = 0;
  for (uint64_t number = 0;; number++) {
    const auto entry = ranks.flight_record()->find(number);
    if (!entry) return bytes;
    if (std::string_view(entry->operation) == "send") bytes += entry->bytes;
  }
}

// Each of the ranks that have the same values sends half of them.
TEST(PipelinedCombinations, SplitLayersOnTwoHosts) {
  const at::Tensor batch = inputs_of(tokens(kRows, 5));
  const at::Tensor evaluated = gpt2(true)->call(batch).detach();
  const auto on_two_hosts = [](StateSettings& state, int rank) {
    state.main_process_ip = std::string("127.0.0.1");
    state.local_process_index = rank % 2;
    state.local_num_processes = 2;
  };
  for (const char* schedule : {"1f1b", "zero_bubble", "interleaved"}) {
    const Case test{schedule, 4};
    SCOPED_TRACE(name_of(test));
    const Trained expected = train_alone(test, 1);
    std::array<std::array<int64_t, 4>, 2> bytes{};  // of each rank, on one host and on two
    for (const bool are_two : {false, true})
      on_mesh(
          {1, 1, 2, 1, 1, 2},
          [&, are_two](const AcceleratorPtr& accelerator) {
            Training training(accelerator, test);
            const int rank = accelerator->state().process_index();
            training.model()->train(false);
            const c10::IValue output = training.model()->call(rank < 2 ? nn::Inputs{batch} : nn::Inputs{});
            if (rank >= 2) {
              EXPECT_TRUE(at::allclose(output.toTensor(), evaluated, kTolerance, kTolerance));
            }
            training.model()->train(true);
            for (int64_t step = 0; step < kSteps; step++)
              EXPECT_NEAR(training.step(step).second, expected.norms[static_cast<size_t>(step)], kTolerance);
            expect_weights(training.inner(), expected.weights);
            bytes[are_two ? 1 : 0][static_cast<size_t>(rank)] =
                bytes_sent(*accelerator->state().groups().mesh()->group("pipeline"));
          },
          are_two ? tests::RankSettings(on_two_hosts) : tests::RankSettings());
    for (size_t rank = 0; rank < 4; rank++) {
      EXPECT_GT(bytes[1][rank], 0);
      EXPECT_LT(static_cast<double>(bytes[1][rank]), 0.7 * static_cast<double>(bytes[0][rank]));
    }
  }
}

TEST(PipelinedCombinations, SplitLayersWithSequencesBetweenThem) {
  for (const bool loss_parallel : {false, true})
    expect_equality({1, 1, 2, 1, 1, 2}, {{"1f1b", 4}, {"interleaved", 4}, {"zero_bubble", 4, false, 2}},
                    [loss_parallel](PrepareModelSettings& settings) {
                      settings.tensor_parallel.sequence_parallel = true;
                      settings.tensor_parallel.loss_parallel = loss_parallel;
                    });
}

TEST(PipelinedCombinations, SplitClassesOfTheLastStage) {
  expect_equality({1, 1, 2, 1, 1, 2}, {{"1f1b", 4}, {"zero_bubble_v", 4}},
                  [](PrepareModelSettings& settings) { settings.tensor_parallel.loss_parallel = true; });
}

TEST(PipelinedCombinations, ShardsByEachSchedule) {
  const std::vector<Case> tests{{"gpipe", 1, true, 1, true},
                                {"1f1b", 3, true, 2, true},
                                {"zero_bubble", 4, false, 2, true},
                                {"zero_bubble_v", 4, true, 2, true}};
  expect_equality({1, 2, 1, 1, 1, 2}, tests);
  expect_equality({1, 2, 1, 1, 1, 2}, tests, [](PrepareModelSettings& settings) {
    settings.fsdp.sharding_strategy = ShardingStrategy::kFullShard;
  });
}

TEST(PipelinedCombinations, RowsThatMicroBatchesDoNotDivide) {
  for (const char* schedule : {"gpipe", "interleaved", "zero_bubble", "zero_bubble_v"})
    expect_equality(stages(2), {{schedule, 4, true, 1, false, 7}, {schedule, 4, true, 2, false, 5}});
  expect_equality({1, 2, 1, 1, 1, 2}, {{"1f1b", 4, true, 1, true, 5}});
}

// The last batch of an epoch is smaller, and the next epoch goes on.
TEST(PipelinedCombinations, BatchesOfOtherSizes) {
  const std::vector<int64_t> sizes{8, 5, 4, 8};
  const nn::ModulePtr whole = gpt2(true);
  const auto alone = adamw(*whole);
  std::vector<double> losses;
  for (size_t step = 0; step < sizes.size(); step++) {
    const at::Tensor rows = tokens(sizes[step], static_cast<int64_t>(step));
    const at::Tensor loss = tensor::cross_entropy(whole->call(inputs_of(rows)), labels_of(rows));
    loss.backward();
    losses.push_back(loss.item<double>());
    alone->step();
    alone->zero_grad(true);
  }
  for (const char* schedule : {"1f1b", "zero_bubble_v"})
    on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, {schedule, 4});
      for (size_t step = 0; step < sizes.size(); step++) {
        EXPECT_NEAR(training.backward(tokens(sizes[step], static_cast<int64_t>(step))), losses[step], kTolerance);
        training.optimizer()->step();
        training.zero_grad();
        tests::expect_error(Status::kInvalidArgument, "3 rows for 4 micro-batches",
                            [&] { training.backward(tokens(3, 1)); });
        training.zero_grad();
      }
    });
}

// Positions of each sequence are on two ranks, by each method.
TEST(PipelinedCombinations, SplitSequences) {
  constexpr int64_t kPositions = 4;
  const auto inputs = [](int64_t step) { return inputs_of(tokens(kRows, step)).narrow(1, 0, kPositions).contiguous(); };
  const auto labels = [](int64_t step) { return labels_of(tokens(kRows, step)).narrow(1, 0, kPositions).contiguous(); };
  const nn::ModulePtr whole = gpt2(true);
  const auto alone = adamw(*whole);
  std::vector<double> losses, norms;
  for (int64_t step = 0; step < kSteps; step++) {
    const at::Tensor loss = tensor::cross_entropy(whole->call(inputs(step)), labels(step));
    loss.backward();
    losses.push_back(loss.item<double>());
    norms.push_back(optim::clip_gradients_by_norm(whole->parameters(), kLargestNorm, 2).item<double>());
    alone->step();
    alone->zero_grad(true);
  }
  std::map<std::string, at::Tensor> weights;
  for (const auto& [name, parameter] : nn::named_members(*whole)) weights[name] = parameter.detach();
  const std::vector<Case> tests{{"1f1b", 4}, {"interleaved", 4}, {"zero_bubble", 4}, {"1f1b", 2, true, 1, true}};
  for (const ContextMethod method : {ContextMethod::kAllGather, ContextMethod::kRing, ContextMethod::kUlysses})
    for (const Case& test : tests) {
      SCOPED_TRACE(name_of(test) + ", method " + std::to_string(static_cast<int>(method)));
      on_mesh({1, 1, 1, 2, 1, 2}, [&](const AcceleratorPtr& accelerator) {
        Training training(accelerator, test);
        ContextParallelism split;
        split.group = accelerator->state().groups().mesh()->group("context");
        split.method = method;
        if (method == ContextMethod::kUlysses) split.order = SequenceOrder::kContiguous;
        for (int64_t step = 0; step < kSteps; step++) {
          const auto index = static_cast<size_t>(step);
          const at::Tensor own_inputs = inputs(step), own_labels = labels(step);
          {
            const ContextScope scope(split, {{own_inputs, 1}, {own_labels, 1}});
            EXPECT_NEAR(accelerator->backward().run_in_stages(
                            training.prepared(), {tree::new_tuple({own_inputs}), own_labels}, cross_entropy()),
                        losses[index], kTolerance);
          }
          EXPECT_NEAR(accelerator->clipping().clip_gradients_by_norm(training.model(), kLargestNorm, 2)->item<double>(),
                      norms[index], kTolerance);
          training.optimizer()->step();
          training.zero_grad();
        }
        expect_weights(training.inner(), weights);
      });
    }
}

// Parameters are gathered once a step, unless the program says otherwise.
TEST(PipelinedCombinations, StagesKeepTheirParametersThroughAStep) {
  accelerator::ShardingJob job;
  PrepareModelSettings settings;
  settings.fsdp.enabled = true;
  const auto strategy = [&] { return accelerator::choose_sharding(settings, job).settings.sharding_strategy.value; };
  EXPECT_EQ(strategy(), ShardingStrategy::kFullShard);
  job.has_stages = true;
  EXPECT_EQ(strategy(), ShardingStrategy::kShardGradOp);
  settings.fsdp.sharding_strategy = ShardingStrategy::kFullShard;
  EXPECT_EQ(strategy(), ShardingStrategy::kFullShard);
}

// A step in the scope of the trigger exchanges what has accumulated, although exchanges are off around it.
TEST(PipelinedCombinations, AStepThatIsTriggeredExchanges) {
  const auto test_on = [](const MeshSizes& mesh, const Case& test) {
    SCOPED_TRACE(name_of(test));
    const nn::ModulePtr whole = gpt2(true);
    std::map<std::string, at::Tensor> gradients;
    for (const int64_t number : {0, 1}) {
      std::vector<at::Tensor> rows;
      for (int64_t rank = 0; rank < mesh.replicas * mesh.shards; rank++) rows.push_back(rows_of(test, number, 0, rank));
      const at::Tensor all = at::cat(rows);
      tensor::cross_entropy(whole->call(inputs_of(all)), labels_of(all)).backward();
    }
    for (const auto& [name, parameter] : nn::named_members(*whole))
      if (parameter.grad().defined()) gradients[name] = parameter.grad();
    on_mesh(mesh, [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, test);
      const int64_t rank = accelerator->state().groups().data_parallel()->rank();
      {
        const accelerator::NoSyncGuard unexchanged({training.model()});
        training.backward(rows_of(test, 0, 0, rank));
        const accelerator::TriggerSyncGuard triggered(training.model());
        training.backward(rows_of(test, 1, 0, rank));
      }
      const nn::Placements placements = nn::placements(training.inner());
      for (const auto& [name, parameter] : nn::named_parameters(training.inner()))
        for (const tensor::PlacedBox& box : placements.find(parameter)->boxes) {
          ASSERT_TRUE(parameter.grad().defined()) << name;
          EXPECT_TRUE(at::allclose(tensor::narrow(parameter.grad(), {box.local, box.whole.sizes}),
                                   tensor::narrow(gradients.at(name), box.whole), kTolerance, kTolerance))
              << name;
        }
      // Nothing is left of it: the next step without an exchange has gradients of its own.
      training.zero_grad();
      const accelerator::NoSyncGuard unexchanged({training.model()});
      EXPECT_GT(training.backward(rows_of(test, 0, 0, rank)), 0);
    });
  };
  test_on(stages(2), {"1f1b", 4});
  test_on({2, 1, 1, 1, 1, 2}, {"1f1b", 4});
  test_on({2, 1, 1, 1, 1, 2}, {"zero_bubble", 4});
  test_on({1, 2, 1, 1, 1, 2}, {"1f1b", 4, true, 1, true});
}

}  // namespace pipelined_combinations_test
}  // namespace accel::parallel
