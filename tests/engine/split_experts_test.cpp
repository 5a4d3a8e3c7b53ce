// SPDX-License-Identifier: Apache-2.0
// Experts whose layers are split over the axis tensor, and experts of programs by the rules of a plan.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <string>

#include "accelerator/training_memory.hpp"
#include "config/generated/settings/prepare/estimate_memory.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "expert_model_fixture.hpp"
#include "nn/module_walks.hpp"

namespace accel::parallel {
namespace split_experts_test {

using namespace split_model_tests;

PrepareModelSettings settings_of(bool is_sharded, bool splits_experts) {
  PrepareModelSettings settings = is_sharded ? PrepareModelSettings() : replicated();
  settings.expert_parallel.tensor_parallel_experts = splits_experts;
  return settings;
}

const Case kMixtures{"mixtures", with_experts, "none"};

TEST(SplitExperts, TrainAsOneProcess) {
  const Trained expected = train_alone(kMixtures, 3);
  for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, MeshSizes{1, 1, 3}, MeshSizes{1, 2, 2}, MeshSizes{1, 2, 2, 1, 2}})
    for (const bool is_sharded : {false, true})
      expect_trains_alike(expected, sizes, kMixtures, settings_of(is_sharded, true));
}

TEST(SplitExperts, TrainAsOneProcessByRules) {
  const Case test{"rules", with_experts, "first.experts moe_tp_experts; head colwise_gather_output"};
  const Trained expected = train_alone(kMixtures, 3);
  for (const bool splits_others : {false, true})
    expect_trains_alike(expected, {1, 1, 2}, test, settings_of(false, splits_others));
}

// Between split layers a rank has its positions, and its router a term of the gradient.
TEST(SplitExperts, TrainAsOneProcessOnSplitSequences) {
  Case test{"sequences", with_experts,
            "words embedding_rowwise; norm sequence_parallel; first.gate sequence_parallel; second.gate "
            "sequence_parallel; head colwise_gather_output"};
  test.sequence_parallel = true;
  const Trained expected = train_alone(kMixtures, 3);
  for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, MeshSizes{1, 2, 2, 1, 2}})
    expect_trains_alike(expected, sizes, test, settings_of(false, true));
}

TEST(SplitExperts, ARankHasItsFeatures) {
  on_mesh({1, 2, 2, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator, kMixtures, settings_of(false, true));
    const at::Tensor own = nn::find_tensor(*training.inner(), "first.experts.gate_up_proj");
    EXPECT_EQ(own.sizes().vec(), (std::vector<int64_t>{2, 12, kHidden}));
    comm::Mesh& mesh = *accelerator->state().groups().mesh();
    const at::Tensor whole =
        nn::find_tensor(*with_experts(), "first.experts.gate_up_proj").narrow(0, 2 * mesh.coordinate("shard"), 2);
    for (const int64_t half : {0, 1})
      EXPECT_TRUE(own.narrow(1, 6 * half, 6).equal(whole.narrow(1, 12 * half + 6 * mesh.coordinate("tensor"), 6)));
  });
}

TEST(SplitExperts, OfProgramsTrainAsOneProcess) {
  const Case alone{"alone", with_experts_of_a_program, "none"};
  const Trained expected = train_alone(alone, 3);
  for (const std::string plan : {"experts ep_dispatch_experts", "experts.up grouped_gemm; experts.down grouped_gemm"})
    for (const MeshSizes& sizes : {MeshSizes{1, 2, 1, 1, 2}, MeshSizes{1, 4, 1, 1, 2}, MeshSizes{1, 4, 1, 1, 4}})
      for (const bool is_sharded : {false, true})
        expect_trains_alike(expected, sizes, {plan, with_experts_of_a_program, plan}, settings_of(is_sharded, false));
}

TEST(SplitExperts, RulesThatDoNotFitAreRefused) {
  const auto refuse = [](const std::string& plan, const std::string& message) {
    on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
      PrepareModelSettings settings;
      settings.tensor_parallel.plan = plan;
      tests::expect_error(Status::kInvalidArgument, message, [&] {
        accelerator->preparation().prepare_model(
            plan.find("up") == std::string::npos ? with_experts() : with_experts_of_a_program(), settings);
      });
    });
  };
  refuse("first moe_tp_experts", "rule 'first moe_tp_experts' does not fit 'first', of kind 'MixtureOfExperts'");
  refuse("first.experts.down_proj rowwise", "names a parameter of experts; expected 'first.experts moe_tp_experts'");
  refuse("experts moe_tp_experts; experts.up colwise", "and the plan has no rule for 'experts.down', which each rank");
  refuse("experts moe_tp_experts; experts.up embedding_rowwise; experts.down rowwise", "expected colwise or rowwise");
}

// Of each rank's own experts, whole or with some features.
TEST(SplitExperts, EstimatesAreWhatARankStores) {
  for (const MeshSizes& sizes : {MeshSizes{1, 2, 1, 1, 2}, MeshSizes{1, 1, 2}, MeshSizes{1, 2, 2, 1, 2}})
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      EstimateMemorySettings estimate;
      estimate.num_processes = sizes.ranks();
      estimate.tensor_parallel_size = sizes.parts;
      estimate.expert_parallel_size = sizes.experts;
      estimate.model_options = settings_of(false, true);
      estimate.model_options.tensor_parallel.plan = std::string("none");
      const Training training(accelerator, kMixtures, settings_of(false, true));
      int64_t bytes = 0;
      for (const at::Tensor& parameter : training.inner()->parameters())
        bytes += static_cast<int64_t>(parameter.nbytes());
      EXPECT_EQ(accelerator::estimate_memory(with_experts(), nullptr, estimate).peak.parameters, bytes);
      EXPECT_EQ(accelerator::estimate_memory(training.model(), nullptr, estimate).peak.parameters, bytes);
    });
}

TEST(SplitExperts, EstimatesKnowWhoShardsThem) {
  EstimateMemorySettings estimate;
  estimate.num_processes = 4;
  estimate.model_options.fsdp.enabled = true;
  const auto alone = accelerator::estimate_memory(with_experts(), nullptr, estimate).peak;
  estimate.expert_parallel_size = 4;
  const auto shared = accelerator::estimate_memory(with_experts(), nullptr, estimate).peak;
  EXPECT_EQ(shared.parameters, alone.parameters);  // as many rows as one expert has
  EXPECT_LT(shared.gathered_parameters, alone.gathered_parameters / 2);
  estimate.batch_size = 2;
  estimate.sequence_length = 8;
  estimate.model_options.tensor_parallel.plan = std::string("head colwise_gather_output");
  tests::expect_error(Status::kUnsupported, "a model of kind 'Experts' has experts, whose activations depend on",
                      [&] { accelerator::estimate_memory(with_experts(), nullptr, estimate); });
  estimate.batch_size = estimate.sequence_length = 0;
  estimate.expert_parallel_size = 3;
  tests::expect_error(Status::kInvalidArgument, "a parameter has 4 experts, and expert_parallel_size is 3",
                      [&] { accelerator::estimate_memory(with_experts(), nullptr, estimate); });
}

}  // namespace split_experts_test
}  // namespace accel::parallel
