// SPDX-License-Identifier: Apache-2.0
// Models without memory, and models that are made on another device.
#include "nn/creation_device.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>

#include <chrono>
#include <thread>

#include "nn/architectures/architecture.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/module_shapes.hpp"
#include "nn/module_walks.hpp"
#include "nn/torchscript_module.hpp"
#include "nn_fixture.hpp"

namespace accel::nn {
namespace creation_device_test {

using tests::expect_error;

// Of every kind of layer, with a foreign module at its root.
ModulePtr all_layers() {
  const auto root = std::make_shared<CallbackModule>("Root");
  root->add_parameter("gain", at::ones({2}));
  root->add_buffer("offset", at::ones({3}));
  root->add_child("linear", std::make_shared<Linear>(2, 3, true));
  root->add_child("embedding", std::make_shared<Embedding>(4, 2));
  root->add_child("layer_norm", std::make_shared<LayerNorm>(2));
  root->add_child("rms_norm", std::make_shared<RmsNorm>(2));
  root->add_child("batch_norm", std::make_shared<BatchNorm>(2));
  root->add_child("attention", std::make_shared<SelfAttention>(4, 2, true, true, 0.0));
  root->add_child("convolution", std::make_shared<Conv2d>(Conv2dShape{2, 3, 3, 1, 1, 1}, true));
  return root;
}

int64_t count_meta(const NamedTensors& tensors) {
  return std::count_if(tensors.begin(), tensors.end(), [](const NamedTensor& entry) { return entry.second.is_meta(); });
}

// The numbers that the default generator of the CPU gives next.
at::Tensor next_numbers() { return at::rand({3}); }

TEST(CreationDevice, MetaTakesParametersOfEveryLayerAndDrawsNothing) {
  at::manual_seed(5);
  const at::Tensor expected = next_numbers();
  const ModulePtr usual = all_layers();
  at::manual_seed(5);
  ModulePtr model;
  {
    const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/false);
    model = all_layers();
  }
  EXPECT_TRUE(at::equal(next_numbers(), expected));
  const NamedTensors parameters = nn::named_parameters(*model);
  EXPECT_EQ(count_meta(parameters), static_cast<int64_t>(parameters.size()));
  EXPECT_EQ(count_meta(nn::named_buffers(*model)), 0);
  const NamedTensors others = nn::named_parameters(*usual);
  ASSERT_EQ(parameters.size(), others.size());
  for (size_t i = 0; i < others.size(); i++) {
    EXPECT_EQ(parameters[i].first, others[i].first);
    EXPECT_EQ(parameters[i].second.sizes(), others[i].second.sizes());
    EXPECT_EQ(parameters[i].second.requires_grad(), others[i].second.requires_grad());
  }
  EXPECT_EQ(count_meta(nn::named_parameters(*all_layers())), 0);
}

TEST(CreationDevice, TakesBuffersWhenAsked) {
  const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/true);
  const NamedTensors buffers = nn::named_buffers(*all_layers());
  EXPECT_EQ(buffers.size(), 4u);
  EXPECT_EQ(count_meta(buffers), 4);
}

TEST(CreationDevice, TheInnermostScopeCounts) {
  const CreationDevice outer(c10::Device(c10::kMeta), /*include_buffers=*/true);
  {
    const CreationDevice inner(c10::Device(c10::kCPU), /*include_buffers=*/false);
    const ModulePtr model = all_layers();
    EXPECT_EQ(count_meta(nn::named_parameters(*model)), 0);
    EXPECT_EQ(count_meta(nn::named_buffers(*model)), 4) << "those that the inner scope leaves alone";
  }
  {
    const CreationDevice none(std::nullopt, /*include_buffers=*/true);
    EXPECT_EQ(count_meta(nn::named_buffers(*all_layers())), 0);
  }
  const ModulePtr model = all_layers();
  EXPECT_EQ(count_meta(nn::named_parameters(*model)), static_cast<int64_t>(nn::named_parameters(*model).size()));
}

TEST(CreationDevice, IsOfItsThread) {
  const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/false);
  std::thread([] { EXPECT_FALSE(std::make_shared<Linear>(2, 2, true)->parameter(0).is_meta()); }).join();
  EXPECT_TRUE(std::make_shared<Linear>(2, 2, true)->parameter(0).is_meta());
}

TEST(CreationDevice, EndsAfterAnError) {
  expect_error(Status::kInvalidArgument, "out_features is 0", [] {
    const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/false);
    Linear(2, 0, true);
  });
  EXPECT_FALSE(std::make_shared<Linear>(2, 2, true)->parameter(0).is_meta());
}

TEST(CreationDevice, KeepsTensorsThatAreThere) {
  const at::Tensor weight = at::ones({2});
  Module module("Module");
  {
    const CreationDevice cpu(c10::Device(c10::kCPU, 0), /*include_buffers=*/true);
    module.add_parameter("weight", weight);
    module.add_parameter("shape", at::empty({2}, at::kMeta));
  }
  EXPECT_TRUE(nn::find_tensor(module, "weight").is_same(weight));
  EXPECT_TRUE(nn::find_tensor(module, "shape").is_meta()) << "there is nothing to copy";
}

TEST(CreationDevice, RefusesADeviceThatIsNotThere) {
  expect_error(Status::kUnsupported, "hpu", [] { const CreationDevice scope(c10::Device(c10::kHPU), false); });
  EXPECT_FALSE(std::make_shared<Linear>(2, 2, true)->parameter(0).is_meta());
}

TEST(CreationDevice, TorchScriptKeepsTiesAndItsCodeSeesTheTensors) {
  const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/true);
  const ModulePtr model = load_torchscript(tests::fixture_path("scripted.pt"));
  EXPECT_EQ(count_meta(model->state_dict()), 3);
  EXPECT_TRUE(nn::find_tensor(*model, "head.weight").is_same(nn::find_tensor(*model, "embedding.weight")));
  EXPECT_TRUE(nn::find_tensor(*model, "head.weight").requires_grad());
  const at::Tensor hidden = at::empty({2, 4}, at::kMeta);
  const at::Tensor output = model->find("head")->call(hidden);
  EXPECT_TRUE(output.is_meta());
  EXPECT_EQ(output.sizes().vec(), (std::vector<int64_t>{2, 5}));
}

// Meta tensors are quick; a gigabyte of memory is not.
TEST(CreationDevice, MakesALargeModelInNoTime) {
  const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/false);
  const auto begin = std::chrono::steady_clock::now();
  const ModulePtr model = module_from_config(
      R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
          "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "dtype": "bfloat16"})");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(nn::num_parameters(*model), 70553706496);
  EXPECT_LT(seconds.count(), 0.5);
  RecordProperty("milliseconds", std::to_string(seconds.count() * 1e3));
}

TEST(CreationDevice, Gpt2HasNoMemoryEither) {
  const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/false);
  const ModulePtr model = module_from_config(R"({"model_type": "gpt2", "dtype": "bfloat16"})");
  EXPECT_EQ(nn::num_parameters(*model), 124439808);
  for (const auto& [name, tensor] : model->state_dict()) {
    EXPECT_TRUE(tensor.is_meta()) << name;
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16) << name;
  }
  EXPECT_TRUE(nn::find_tensor(*model, "lm_head.weight").is_same(nn::find_tensor(*model, "transformer.wte.weight")));
}

}  // namespace creation_device_test
}  // namespace accel::nn
