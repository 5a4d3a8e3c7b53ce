// Expert parallelism: a model whose experts are shared out over ranks trains as in one process.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoint_fixture.hpp"
#include "config/generated/choices/auto_wrap_policy.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/module_walks.hpp"
#include "split_model_fixture.hpp"

namespace accel::parallel {
namespace expert_parallel_test {

using namespace split_model_tests;
using tests::expect_error;

constexpr int64_t kHidden = 8, kExperts = 4;

nn::ModulePtr with_experts() {
  const auto model = std::make_shared<nn::CallbackModule>("Experts");
  model->add_child("words", std::make_shared<nn::Embedding>(kVocabulary, kHidden));
  model->add_child("first", std::make_shared<nn::MixtureOfExperts>(nn::MixtureSettings{kHidden, 12, kExperts, 2}));
  model->add_child("norm", std::make_shared<nn::LayerNorm>(kHidden, 1e-5));
  model->add_child("second",
                   std::make_shared<nn::MixtureOfExperts>(nn::MixtureSettings{kHidden, 10, kExperts, 3, 0.01}));
  model->add_child("head", std::make_shared<nn::Linear>(kHidden, kVocabulary, true));
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const auto call = [&](size_t child, const at::Tensor& x) { return self.children()[child].second->call(x); };
    at::Tensor x = call(0, inputs[0].toTensor());
    x = call(2, x + call(1, x));
    return call(4, x + call(3, x));
  });
  return with_known_weights(model);
}

const Case kCase{"experts", with_experts, "none"};
const Case kSplit{"experts beside a split head", with_experts, "head colwise_gather_output"};

PrepareModelSettings replicated() {
  PrepareModelSettings settings;
  settings.fsdp.sharding_strategy = ShardingStrategy::kNoShard;
  return settings;
}

std::string text_of(const MeshSizes& sizes, bool is_sharded) {
  return split_model_tests::text_of(sizes) + " x " + std::to_string(sizes.contexts) + ", experts " +
         std::to_string(sizes.experts) + (is_sharded ? ", sharded" : "");
}

void expect_trains_alike(const Trained& expected, const MeshSizes& sizes, bool is_sharded, const Case& test = kCase) {
  SCOPED_TRACE(text_of(sizes, is_sharded));
  on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test, is_sharded ? PrepareModelSettings() : replicated());
    for (size_t step = 0; step < expected.steps.size(); step++) {
      const double norm = training.step(static_cast<int64_t>(step)).second;
      EXPECT_NEAR(norm, expected.steps[step].second, 1e-9);
    }
    expect_close(training.weights(), expected.weights, 1e-9);
  });
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

TEST(ExpertParallel, ARankHasItsExperts) {
  on_mesh({1, 2, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    Training training(accelerator, kCase, replicated());
    const at::Tensor own = nn::find_tensor(*training.inner(), "first.experts.gate_up_proj");
    EXPECT_EQ(own.sizes().vec(), (std::vector<int64_t>{2, 24, kHidden}));
    const at::Tensor whole = nn::find_tensor(*with_experts(), "first.experts.gate_up_proj");
    EXPECT_TRUE(own.equal(whole.narrow(0, 2 * accelerator->state().groups().mesh()->coordinate("expert"), 2)));
  });
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
          SCOPED_TRACE(text_of(sizes, is_sharded));
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
    expect_error(Status::kInvalidArgument, "'first' has 4 experts, and expert_parallel_size is 3",
                 [&] { accelerator->preparation().prepare_model(with_experts(), replicated()); });
  });
  expect_error(Status::kInvalidArgument,
               "expert_parallel_size is 2 and one copy of the model has 1 ranks (data_parallel_shard_size 1 x", [] {
                 on_mesh({2, 1, 1, 1, 2}, [](const AcceleratorPtr&) {});
               });
  on_mesh({1, 1, 2, 1, 2}, [](const AcceleratorPtr& accelerator) {
    PrepareModelSettings settings;
    settings.tensor_parallel.plan = std::string("none");
    settings.tensor_parallel.plan = std::string("first.experts moe_tp_experts");
    expect_error(Status::kUnsupported, "the style 'moe_tp_experts', which shares experts out",
                 [&] { accelerator->preparation().prepare_model(with_experts(), settings); });
    settings.tensor_parallel.plan = std::string("none");
    settings.expert_parallel.tensor_parallel_experts = true;
    expect_error(Status::kUnsupported, "tensor_parallel_experts is 1",
                 [&] { accelerator->preparation().prepare_model(with_experts(), settings); });
  });
}

}  // namespace expert_parallel_test
}  // namespace accel::parallel
