// SPDX-License-Identifier: Apache-2.0
// Adapters train on several ranks, under accumulation and clipping, from checkpoints and beside offloaded weights as in
// one process, and only they change.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "bigmodel/load_and_dispatch.hpp"
#include "checkpoint/formats/adapter_folder.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/big_model/dispatch.hpp"
#include "expect_error.hpp"
#include "nn/adapters/adapters.hpp"
#include "report/temporary_folder.hpp"
#include "split_model_fixture.hpp"

namespace accel::nn {
namespace adapter_training_test {

using namespace parallel::split_model_tests;
using tests::expect_error;
using tests::RankSettings;
using tests::TemporaryFolder;

constexpr const char* kName = "mine";
constexpr int kSteps = 4;

bool is_trained(const std::string& name) { return name.find(".lora_") != std::string::npos; }

LoraConfig config_of(bool is_dora) {
  LoraConfig config;
  config.shape.rank = 3;
  config.shape.is_dora = is_dora;
  config.targets.endings = {"q_proj", "v_proj", "down_proj"};
  return config;
}

// Ranks that are threads share one random stream, so that the factors are not drawn.
void set_known_factors(Module& model) {
  const at::NoGradGuard no_grad;
  double seed = 0.5;
  for (const auto& [path, tensor] : named_parameters(model)) {
    if (path.find("lora_A") == std::string::npos && path.find("lora_B") == std::string::npos) continue;
    seed += 0.3;
    at::Tensor(tensor).copy_(
        at::linspace(-2 * seed, 7 * seed, tensor.numel(), at::kDouble).sin().mul(0.2).view(tensor.sizes()));
  }
}

ModulePtr adapted_llama(bool is_dora) {
  ModulePtr model = llama();
  add_lora(*model, kName, config_of(is_dora));
  set_known_factors(*model);
  return model;
}

Case adapted(bool is_dora) {
  return {is_dora ? "DoRA" : "LoRA", [is_dora] { return adapted_llama(is_dora); }, "auto", kFloatTolerance};
}

at::Tensor some_tokens() { return at::arange(12).mul(5).remainder(kVocabulary).view({2, 6}); }

TEST(AdapterTraining, OfSeveralRanksIsThatOfOneProcess) {
  for (const bool is_dora : {false, true}) {
    const Case test = adapted(is_dora);
    const Trained expected = train_alone(test, kSteps);
    const ModulePtr before = test.make();
    for (const auto& [name, tensor] : before->state_dict())
      EXPECT_EQ(at::allclose(tensor, expected.weights.at(name)), !is_trained(name)) << name;
    for (const MeshSizes& sizes : std::vector<MeshSizes>{{2, 1, 1}, {1, 2, 1}}) expect_trains_as(expected, test, sizes);
  }
}

TEST(AdapterTraining, ExchangesOnlyWhatIsTrained) {
  for (const MeshSizes& sizes : std::vector<MeshSizes>{{2, 1, 1}, {1, 2, 1}})
    on_mesh(sizes, [](const AcceleratorPtr& accelerator) {
      Training training(accelerator, adapted(true));
      training.backward(0);
      size_t trained = 0;
      for (const auto& [name, parameter] : named_parameters(*training.inner())) {
        EXPECT_EQ(parameter.grad().defined(), is_trained(name)) << name;
        trained += is_trained(name) ? 1 : 0;
      }
      EXPECT_EQ(trained, 2 * 3 * 3);
    });
}

TEST(AdapterTraining, AccumulatesOnSeveralRanks) {
  const Case test = adapted(false);
  const auto train = [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    for (int step = 0; step < kSteps; step++) {
      training.backward(10 + step);
      training.step(step);
    }
    return training.weights();
  };
  std::map<std::string, at::Tensor> expected;
  on_mesh({1, 1, 1}, [&](const AcceleratorPtr& accelerator) { expected = train(accelerator); });
  for (const MeshSizes& sizes : std::vector<MeshSizes>{{2, 1, 1}, {1, 2, 1}})
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) { expect_close(train(accelerator), expected, 1e-5); });
}

TEST(AdapterTraining, GoesOnFromCheckpointsOfOtherMeshes) {
  const Case test = adapted(true);
  const Trained expected = train_alone(test, kSteps);
  const std::vector<MeshSizes> meshes = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}};
  for (size_t i = 0; i < meshes.size(); i++) {
    SCOPED_TRACE(text_of(meshes[i]));
    const TemporaryFolder folder;
    on_mesh(meshes[i], [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, test);
      for (int step = 0; step < kSteps; step++) training.step(step);
      accelerator->checkpoints().save_state(folder.path() + "/state");
      accelerator->files().save_adapter(training.model(), kName, folder.path() + "/adapter",
                                        accelerator->state().is_main_process());
    });
    on_mesh(meshes[(i + 1) % meshes.size()], [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, test);
      accelerator->checkpoints().load_state(folder.path() + "/state");
      expect_close(training.weights(), expected.weights, kFloatTolerance);
      training.step(kSteps);
      expect_close(training.weights(), expected.more, kFloatTolerance);
    });
    const ModulePtr model = llama();
    checkpoint::load_adapter(*model, kName, folder.path() + "/adapter");
    for (const auto& [name, tensor] : model->state_dict())
      EXPECT_TRUE(at::allclose(tensor, expected.weights.at(name), kFloatTolerance, kFloatTolerance)) << name;
  }
}

TEST(AdapterTraining, ShardsAreNeitherMergedNorGivenAdapters) {
  on_mesh({1, 2, 1}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator, adapted(false));
    expect_error(Status::kInvalidState, "is offloaded or a shard", [&] { merge_adapters(*training.inner()); });
    expect_error(Status::kInvalidState, "is sharded; expected that adapters are added before",
                 [&] { add_lora(*training.inner(), "more", config_of(false)); });
    EXPECT_EQ(adapter_names(*training.inner()), AdapterNames({kName}));
  });
}

TEST(AdapterTraining, LayersThatAreSplitAreRefused) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    expect_error(Status::kUnsupported,
                 "q_proj' has adapters, and the rule 'layers.*.self_attn.q_proj colwise' splits it over ranks",
                 [&] { Training(accelerator, adapted(false)); });
  });
}

// The casts of weights that autocast keeps follow a merge.
TEST(AdapterTraining, MergesUnderMixedPrecision) {
  const RankSettings in_half = [](StateSettings& settings, int) { settings.mixed_precision = Precision::kBf16; };
  on_mesh(
      {1, 1, 1},
      [](const AcceleratorPtr& accelerator) {
        const ModulePtr inner = adapted_llama(false);
        inner->to(at::kFloat, std::nullopt);
        const ModulePtr model = accelerator->preparation().prepare_model(inner, {});
        const at::NoGradGuard no_grad;
        const at::Tensor apart = model->call(some_tokens());
        const AdapterScope none(std::make_shared<const AdapterNames>());
        const at::Tensor without = model->call(some_tokens());
        merge_adapters(*inner);
        const at::Tensor merged = model->call(some_tokens());
        const double change = (without - apart).abs().max().item<double>();
        EXPECT_LT((merged - apart).abs().max().item<double>(), 0.2 * change);
      },
      in_half);
}

// Gradients of the factors, by their names, and the logits.
std::map<std::string, at::Tensor> gradients_of(Module& model) {
  std::map<std::string, at::Tensor> found;
  const at::Tensor logits = model.call(some_tokens());
  logits.square().mean().backward();
  found["logits"] = logits.detach();
  for (const auto& [name, parameter] : named_parameters(model))
    if (is_trained(name)) found[name] = parameter.grad();
  return found;
}

TEST(AdapterTraining, StandsBesideOffloadedWeights) {
  for (const bool is_dora : {false, true})
    for (const bool on_disk : {false, true}) {
      SCOPED_TRACE(text(is_dora ? "DoRA" : "LoRA", on_disk ? " on disk" : " in memory"));
      const TemporaryFolder folder;
      const std::map<std::string, at::Tensor> expected = gradients_of(*adapted_llama(is_dora));
      const ModulePtr model = llama();
      if (on_disk)
        bigmodel::disk_offload(*model, folder.path(), std::nullopt, {});
      else
        bigmodel::cpu_offload(*model, std::nullopt, {});
      add_lora(*model, kName, config_of(is_dora));
      set_known_factors(*model);
      const std::map<std::string, at::Tensor> found = gradients_of(*model);
      expect_close(found, expected, 1e-9);
      if (on_disk) expect_error(Status::kInvalidState, "is offloaded or a shard", [&] { merge_adapters(*model); });
      checkpoint::save_adapter(*model, kName, folder.path() + "/adapter");
      const ModulePtr other = llama();
      checkpoint::load_adapter(*other, "again", folder.path() + "/adapter");
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::allclose(other->call(some_tokens()), expected.at("logits")));
    }
}

TEST(AdapterTraining, IsOffloadedWithTheModel) {
  const at::NoGradGuard no_grad;
  const at::Tensor expected = adapted_llama(true)->call(some_tokens());
  const TemporaryFolder folder;
  const ModulePtr model = adapted_llama(true);
  bigmodel::disk_offload(*model, folder.path() + "/weights", std::nullopt, {});
  EXPECT_TRUE(at::allclose(model->call(some_tokens()), expected));
  checkpoint::save_adapter(*model, kName, folder.path() + "/adapter", model->state_dict());
  const ModulePtr other = llama();
  checkpoint::load_adapter(*other, kName, folder.path() + "/adapter");
  EXPECT_TRUE(at::allclose(other->call(some_tokens()), expected));
}

}  // namespace adapter_training_test
}  // namespace accel::nn
