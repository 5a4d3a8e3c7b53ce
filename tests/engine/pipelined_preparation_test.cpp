// SPDX-License-Identifier: Apache-2.0
// Models that are cut into stages: ranks with other models or options than the rest of the job hear of it, as all do,
// instead of waiting for stages that nobody has.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/collectives.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "expect_error.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/sequential.hpp"
#include "pipelined_model_fixture.hpp"

namespace accel::parallel {
namespace pipelined_preparation_test {

using namespace pipelined_model_tests;

constexpr int64_t kTimeoutMs = 20000;  // far above the time of a preparation, in which nobody waits for a rank

void in_time(StateSettings& state, int /*rank*/) { state.timeout_ms = kTimeoutMs; }

struct Difference {
  std::string words;
  std::function<void(PrepareModelSettings& settings)> change;
};

const std::vector<Difference> kDifferences{
    {"has schedule \"gpipe\", and rank 0 has schedule \"1f1b\"",
     [](PrepareModelSettings& settings) { settings.pipeline.schedule = std::string("gpipe"); }},
    {"has micro_batches 2, and rank 0 has micro_batches 4",
     [](PrepareModelSettings& settings) { settings.pipeline.micro_batches = 2; }},
    {"has split \"flops\", and rank 0 has split \"parameters\"",
     [](PrepareModelSettings& settings) { settings.pipeline.split = std::string("flops"); }},
    {"has max_in_flight 1, and rank 0 has max_in_flight 0",
     [](PrepareModelSettings& settings) { settings.pipeline.max_in_flight = 1; }},
    {"has boundary_dtype \"float32\", and rank 0 has boundary_dtype \"\"",
     [](PrepareModelSettings& settings) { settings.pipeline.boundary_dtype = std::string("float32"); }},
    {"has gather_output 1, and rank 0 has gather_output 0",
     [](PrepareModelSettings& settings) { settings.pipeline.gather_output = true; }},
    {"has broadcast_loss 0, and rank 0 has broadcast_loss 1",
     [](PrepareModelSettings& settings) { settings.pipeline.broadcast_loss = false; }},
    {"has plan \"none\", and rank 0 has plan \"auto\"",
     [](PrepareModelSettings& settings) { settings.tensor_parallel.plan = std::string("none"); }},
    {"has sharding_strategy full_shard, and rank 0 has sharding_strategy shard_grad_op",
     [](PrepareModelSettings& settings) { settings.fsdp.sharding_strategy = ShardingStrategy::kFullShard; }},
};

// Any rank may be the one, of any pipeline.
TEST(PipelinedPreparation, RanksWithOtherOptionsAreNamed) {
  const Case test{"1f1b", 4, true, 1, true};
  on_mesh(
      {1, 2, 1, 1, 1, 2},
      [&](const AcceleratorPtr& accelerator) {
        const int64_t rank = accelerator->state().process_index();
        int64_t other = 0;
        for (const Difference& difference : kDifferences) {
          other = other % 3 + 1;
          PrepareModelSettings settings = settings_of(test);
          if (rank == other) difference.change(settings);
          tests::expect_error(Status::kCollectiveMismatch,
                              "rank " + std::to_string(other) + " of the job " + difference.words,
                              [&] { accelerator->preparation().prepare_model(gpt2(true), settings); });
        }
        PrepareModelSettings own = settings_of(test);
        own.pipeline.check_balance = rank == 0;
        EXPECT_NE(accelerator->preparation().prepare_model(gpt2(true), own), nullptr);
      },
      in_time);
}

TEST(PipelinedPreparation, RanksWithOtherModelsAreNamed) {
  const auto linear = [] { return std::make_shared<nn::Linear>(2, 2, true); };
  on_mesh(
      stages(2),
      [&](const AcceleratorPtr& accelerator) {
        const bool is_other = accelerator->state().process_index() == 1;
        std::vector<nn::ModulePtr> parts{linear(), linear()};
        if (is_other) parts.push_back(linear());
        const auto chain = std::make_shared<nn::Sequential>(parts);
        tests::expect_error(Status::kCollectiveMismatch, "rank 1 of the job has 3 parts, and rank 0 has 2 parts",
                            [&] { accelerator->preparation().prepare_model(chain, settings_of({})); });
      },
      in_time);
}

// What one rank refuses is the error of all.
TEST(PipelinedPreparation, ARankThatRefusesItsModelIsNamed) {
  on_mesh(
      {2, 1, 1, 1, 1, 2},
      [](const AcceleratorPtr& accelerator) {
        const bool refuses = accelerator->state().process_index() == 3;
        PrepareModelSettings settings = settings_of({});
        if (refuses) settings.pipeline.boundary_dtype = std::string("int8");
        const std::string said =
            tests::message_of([&] { accelerator->preparation().prepare_model(gpt2(true), settings); });
        EXPECT_NE(said.find("int8"), std::string::npos) << said;
        EXPECT_EQ(said.find("rank 3 of the job failed in cutting a model into stages") == std::string::npos, refuses)
            << said;
      },
      in_time);
}

// Times that each pipeline would measure otherwise are those of the first one.
TEST(PipelinedPreparation, PipelinesAreCutAlike) {
  on_mesh({2, 1, 1, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    PrepareModelSettings settings = settings_of({"auto", 4});
    settings.pipeline.split = std::string("measured");
    const nn::ModulePtr model = accelerator->preparation().prepare_model(gpt2(true), settings);
    const std::string table = dynamic_cast<accelerator::PreparedModel&>(*model).pipeline().describe();
    const c10::IValue all =
        comm::gather_object(*accelerator->state().communicator(), tree::new_list({c10::IValue(table)}));
    for (const c10::IValue& one : tree::sequence_items(all)) EXPECT_EQ(one.toStringRef(), table);
  });
}

}  // namespace pipelined_preparation_test
}  // namespace accel::parallel
