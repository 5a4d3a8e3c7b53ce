// SPDX-License-Identifier: Apache-2.0
// Expert parallelism: a model whose experts are shared out over ranks trains as in one process.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_fixture.hpp"
#include "config/generated/choices/auto_wrap_policy.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "expert_model_fixture.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"

namespace accel::parallel {
namespace expert_parallel_test {

using namespace split_model_tests;
using tests::expect_error;

const Case kCase{"experts", with_experts, "none"};
const Case kSplit{"experts beside a split head", with_experts, "head colwise_gather_output"};

void expect_trains_alike(const Trained& expected, const MeshSizes& sizes, bool is_sharded, const Case& test = kCase) {
  split_model_tests::expect_trains_alike(expected, sizes, test, is_sharded ? PrepareModelSettings() : replicated());
}

TEST(ExpertParallel, TrainsAsOneProcess) {
  const Trained expected = train_alone(kCase, 5);
  for (const MeshSizes& sizes : {MeshSizes{1, 2, 1, 1, 1}, MeshSizes{1, 2, 1, 1, 2}, MeshSizes{1, 4, 1, 1, 2},
                                 MeshSizes{1, 4, 1, 1, 4}, MeshSizes{2, 2, 1, 1, 2}, MeshSizes{1, 1, 1, 2, 2}})
    for (const bool is_sharded : {false, true}) expect_trains_alike(expected, sizes, is_sharded);
}

// Ranks with parts of the same layers have the same tokens.
TEST(ExpertParallel, TrainsAsOneProcessBesideSplitLayers) {
  const Trained expected = train_alone(kSplit, 3);
  for (const MeshSizes& sizes : {MeshSizes{1, 1, 2, 1, 2}, MeshSizes{1, 2, 2, 1, 2}, MeshSizes{1, 2, 2, 1, 4}})
    for (const bool is_sharded : {false, true}) expect_trains_alike(expected, sizes, is_sharded, kSplit);
}

// Between split layers a rank has its positions of the sequence, and its router a term of the gradient.
TEST(ExpertParallel, TrainsAsOneProcessOnSplitSequences) {
  Case test{"experts on split sequences", with_experts,
            "words embedding_rowwise; norm sequence_parallel; first.gate sequence_parallel; second.gate "
            "sequence_parallel; head colwise_gather_output"};
  test.sequence_parallel = true;
  const Trained expected = train_alone(test, 3);
  for (const MeshSizes& sizes : {MeshSizes{1, 1, 2, 1, 2}, MeshSizes{1, 2, 2, 1, 4}})
    for (const bool is_sharded : {false, true}) expect_trains_alike(expected, sizes, is_sharded, test);
}

// Experts whose memory comes when the model is prepared.
TEST(ExpertParallel, ModelsWithoutMemoryAreFilled) {
  on_mesh({1, 2, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    nn::ModulePtr layer;
    {
      const nn::CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/true);
      layer = std::make_shared<nn::MixtureOfExperts>(nn::MixtureSettings{kHidden, 12, kExperts, 2});
    }
    const nn::ModulePtr model = accelerator->preparation().prepare_model(layer, replicated());
    const at::Tensor own = nn::find_tensor(*layer, "experts.down_proj");
    EXPECT_EQ(own.sizes().vec(), (std::vector<int64_t>{2, kHidden, 12}));
    EXPECT_LE(own.abs().max().item<double>(), 0.29);  // 1 / sqrt(12)
    EXPECT_GT(own.abs().max().item<double>(), 0.2);
    EXPECT_TRUE(model->call(at::ones({3, kHidden})).isfinite().all().item<bool>());
  });
}

// The backward computes each layer again, with its exchanges.
TEST(ExpertParallel, TrainsAsOneProcessWithRecomputation) {
  const Trained expected = train_alone(kCase, 3);
  PrepareModelSettings settings;
  settings.fsdp.activation_checkpointing = true;
  settings.fsdp.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  settings.fsdp.transformer_cls_names_to_wrap = std::string("MixtureOfExperts");
  on_mesh({1, 2, 1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, kCase, settings);
    for (size_t step = 0; step < expected.steps.size(); step++)
      EXPECT_NEAR(training.step(static_cast<int64_t>(step)).second, expected.steps[step].second, 1e-9);
    expect_close(training.weights(), expected.weights, 1e-9);
  });
}

TEST(ExpertParallel, LocalStepsAndRanksWithoutInputsAreRefused) {
  on_mesh({1, 2, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    Training training(accelerator, kCase, replicated());
    const ParallelModelPtr model = accelerator->prepared().parallel_models().front();
    EXPECT_FALSE(model->can_shadow());
    expect_error(Status::kUnsupported, "expected all ranks, or expert_parallel_size 1",
                 [&] { model->exchange()->set_gradient_group(nullptr); });
  });
}

TEST(ExpertParallel, LomoIsRefused) {
  for (const MeshSizes& sizes : {MeshSizes{1, 2, 1, 1, 2}, MeshSizes{1, 1, 1, 2, 2}})
    on_mesh(sizes, [](const AcceleratorPtr& accelerator) {
      const nn::ModulePtr inner = with_experts();
      const auto plain = optim::make_optimizer(optim::lomo_rule());
      plain->add_group(inner->parameters(), std::nullopt, std::nullopt);
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, replicated());
      expect_error(Status::kUnsupported, "expert", [&] {
        accelerator->preparation().prepare_optimizer(plain);
        const at::Tensor rows = at::ones({2, 4}, at::kLong);
        accelerator->backward().run_lomo(model->call(nn::Inputs{rows}).toTensor().sum(), 0.1);
      });
    });
}

TEST(ExpertParallel, ARankHasItsExperts) {
  on_mesh({1, 2, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    Training training(accelerator, kCase, replicated());
    const at::Tensor own = nn::find_tensor(*training.inner(), "first.experts.gate_up_proj");
    EXPECT_EQ(own.sizes().vec(), (std::vector<int64_t>{2, 24, kHidden}));
    const at::Tensor whole = nn::find_tensor(*with_experts(), "first.experts.gate_up_proj");
    EXPECT_TRUE(own.equal(whole.narrow(0, 2 * accelerator->state().groups().mesh()->coordinate("expert"), 2)));
  });
}

// The gradients themselves: an optimizer of moments would hide a factor.
TEST(ExpertParallel, GradientsAreThoseOfOneProcess) {
  const std::vector<std::string> names = {"first.experts.gate_up_proj", "second.experts.down_proj"};
  std::vector<at::Tensor> expected;
  on_mesh({1, 1, 1}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, kCase);
    training.backward(3);
    for (const std::string& name : names) expected.push_back(nn::find_tensor(*training.inner(), name).grad().clone());
  });
  for (const MeshSizes& sizes : {MeshSizes{1, 2, 1, 1, 1}, MeshSizes{1, 2, 1, 1, 2}, MeshSizes{1, 4, 1, 1, 2},
                                 MeshSizes{1, 4, 1, 1, 4}, MeshSizes{2, 2, 1, 1, 2}})
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      SCOPED_TRACE(text_of(sizes) + ", experts " + std::to_string(sizes.experts));
      Training training(accelerator, kCase, replicated());
      training.backward(3);
      const int64_t own = kExperts / sizes.experts;
      const int64_t rank = sizes.experts == 1 ? 0 : accelerator->state().groups().mesh()->coordinate("expert");
      for (size_t i = 0; i < names.size(); i++) {
        const at::Tensor gradient = nn::find_tensor(*training.inner(), names[i]).grad();
        EXPECT_TRUE(at::allclose(gradient, expected[i].narrow(0, own * rank, own), 1e-11, 1e-11)) << names[i];
      }
    });
}

// A rank may have no tokens of its own, and computes those of others all the same.
TEST(ExpertParallel, ARankWithoutTokensTakesPart) {
  const std::string name = "first.experts.down_proj";
  const auto backward = [](const AcceleratorPtr& accelerator, int64_t rows) {
    const nn::ModulePtr inner = with_experts();
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, replicated());
    const at::Tensor tokens = at::arange(rows * kLength).mul(5).remainder(kVocabulary).view({rows, kLength});
    accelerator->backward().run(model->call(nn::Inputs{tokens}).toTensor().sum());
    return inner;
  };
  at::Tensor expected;
  on_mesh({1, 1, 1}, [&](const AcceleratorPtr& accelerator) {
    expected = nn::find_tensor(*backward(accelerator, 3), name).grad().clone();
  });
  on_mesh({1, 2, 1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    const int rank = accelerator->state().process_index();
    const at::Tensor gradient = nn::find_tensor(*backward(accelerator, rank == 0 ? 3 : 0), name).grad();
    EXPECT_TRUE(at::allclose(gradient, expected.narrow(0, 2 * rank, 2) / 2, 1e-11, 1e-11));
  });
}

// What an expert does not take depends on the tokens of a rank, not on who has the experts.
TEST(ExpertParallel, TheCapacityIsThatOfARanksTokens) {
  PrepareModelSettings settings = replicated();
  settings.expert_parallel.capacity_factor = 0.6;
  std::map<std::string, at::Tensor> expected;
  const auto train = [&](const MeshSizes& sizes) {
    std::map<std::string, at::Tensor> weights;
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, kCase, settings);
      for (int step = 0; step < 3; step++) training.step(step);
      auto own = training.weights();
      if (accelerator->state().process_index() == 0) weights = std::move(own);
    });
    return weights;
  };
  const auto whole = train({1, 2, 1, 1, 1});
  expect_close(train({1, 2, 1, 1, 2}), whole, 1e-9);
  settings.expert_parallel.capacity_factor = 0.0;
  EXPECT_FALSE(train({1, 2, 1, 1, 2}).at("first.experts.down_proj").equal(whole.at("first.experts.down_proj")));
}

TEST(ExpertParallel, CheckpointsLoadOnOtherMeshes) {
  constexpr int kSteps = 2;
  const Trained expected = train_alone(kCase, kSteps);
  for (const StateDictType type : {StateDictType::kFullStateDict, StateDictType::kShardedStateDict})
    for (const bool is_sharded : {false, true}) {
      PrepareModelSettings settings = is_sharded ? PrepareModelSettings() : replicated();
      settings.fsdp.state_dict_type = type;
      const checkpoint::tests::Folder folder;
      on_mesh({1, 2, 1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
        Training training(accelerator, kCase, settings);
        for (int step = 0; step < kSteps; step++) training.step(step);
        accelerator->checkpoints().save_state(folder / "s");
      });
      for (const MeshSizes& sizes : {MeshSizes{1, 1, 1, 1, 1}, MeshSizes{1, 4, 1, 1, 4}, MeshSizes{1, 4, 1, 1, 2}})
        on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
          SCOPED_TRACE(text_of(sizes) + ", experts " + std::to_string(sizes.experts));
          Training training(accelerator, kCase, settings);
          accelerator->checkpoints().load_state(folder / "s");
          expect_close(training.weights(), expected.weights, 1e-9);
          training.step(kSteps);
          expect_close(training.weights(), expected.more, 1e-9);
        });
    }
}

TEST(ExpertParallel, RefusesRanksThatDoNotFit) {
  on_mesh({1, 3, 1, 1, 3}, [](const AcceleratorPtr& accelerator) {
    expect_error(Status::kInvalidArgument, "'first.experts' has 4 experts, and expert_parallel_size is 3",
                 [&] { accelerator->preparation().prepare_model(with_experts(), replicated()); });
  });
  expect_error(Status::kInvalidArgument,
               "expert_parallel_size is 2 and one copy of the model has 1 ranks (data_parallel_shard_size 1 x", [] {
                 on_mesh({2, 1, 1, 1, 2}, [](const AcceleratorPtr&) {});
               });
  on_mesh({1, 1, 2, 1, 2}, [](const AcceleratorPtr& accelerator) {
    PrepareModelSettings settings;
    const auto refuse = [&](const std::string& plan, const std::string& message) {
      settings.tensor_parallel.plan = plan;
      expect_error(Status::kInvalidArgument, message,
                   [&] { accelerator->preparation().prepare_model(with_experts(), settings); });
    };
    refuse("first.experts moe_tp_experts", "'first.experts.gate_up_proj' is split by a plan, and its experts would be");
    refuse("head colwise_gather_output; third ep_dispatch_experts",
           "rule 'third ep_dispatch_experts' of the plan matches");
    refuse("head colwise_gather_output; norm grouped_gemm", "'norm.weight' has the shape [8]; expected the experts");
    settings.expert_parallel.tensor_parallel_experts = true;
    refuse("none",
           "tensor_parallel_experts is 1, expert_parallel_size is 2 and there are 1 ranks along shard and context");
  });
}

}  // namespace expert_parallel_test
}  // namespace accel::parallel
