// SPDX-License-Identifier: Apache-2.0
// Layers against torch.nn: names, shapes, initial weights of one seed, and outputs.
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>
#include <vector>

#include "nn/layers/activation.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/conv1d.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/layers/split_heads.hpp"
#include "nn/module_walks.hpp"
#include "nn_fixture.hpp"

namespace accel::nn {
namespace nn_layers_test {

using tests::expect_close;
using tests::expect_error;

void expect_as_recorded(const char* name, const std::function<ModulePtr()>& make, int64_t integers = 0) {
  SCOPED_TRACE(name);
  const Json fixture = tests::read_fixture("layers.json");
  const Json* const layer_case = json_member(fixture, name);
  ASSERT_NE(layer_case, nullptr);
  at::manual_seed(11);
  const ModulePtr layer = make();
  const NamedTensors parameters = nn::named_parameters(*layer);
  const Json::Items& recorded = *json_member(*layer_case, "parameters")->items();
  ASSERT_EQ(parameters.size(), recorded.size());
  for (size_t i = 0; i < recorded.size(); i++) {
    const auto& [path, tensor] = parameters[i];
    const Json::Items& entry = *recorded[i].items();
    EXPECT_EQ(path, *entry[0].text());
    EXPECT_EQ(tensor.sizes().vec(), tests::integers(entry[1]));
    expect_close(tensor.flatten().slice(0, 0, 3), tests::tensor_of(entry[2]), 1e-8);
    EXPECT_NEAR(tensor.sum(at::kDouble).item<double>(), entry[3].number().value(), 1e-6);
  }
  const std::vector<int64_t> shape = tests::integers(*json_member(*layer_case, "shape"));
  const at::Tensor input = integers == 0 ? tests::pattern_tensor(shape, 1)
                                         : at::arange(c10::multiply_integers(shape)).reshape(shape).remainder(integers);
  const at::Tensor output = layer->call(input);
  EXPECT_EQ(output.sizes().vec(), tests::integers(*json_member(*layer_case, "output_shape")));
  expect_close(output, tests::tensor_of(*json_member(*layer_case, "output")), 2e-6);
}

TEST(NnLayers, AreThoseOfTheReference) {
  expect_as_recorded("linear", [] { return std::make_shared<Linear>(4, 3, true); });
  expect_as_recorded("linear_without_bias", [] { return std::make_shared<Linear>(4, 3, false); });
  expect_as_recorded(
      "embedding", [] { return std::make_shared<Embedding>(5, 3); }, 5);
  expect_as_recorded("layer_norm", [] { return std::make_shared<LayerNorm>(6); });
  expect_as_recorded("rms_norm", [] { return std::make_shared<RmsNorm>(6); });
  expect_as_recorded("conv2d", [] { return std::make_shared<Conv2d>(Conv2dShape{4, 6, 3, 2, 1, 2}, true); });
  expect_as_recorded("batch_norm", [] { return std::make_shared<BatchNorm>(2); });
  expect_as_recorded("attention", [] { return std::make_shared<SelfAttention>(8, 2, false, true, 0.0); });
  expect_as_recorded("causal_attention", [] { return std::make_shared<SelfAttention>(8, 2, true, false, 0.0); });
}

TEST(NnLayers, RefuseBadSizes) {
  expect_error(Status::kInvalidArgument, "in_features is 0", [] { Linear(0, 3, true); });
  expect_error(Status::kInvalidArgument, "embedding_dim is -1", [] { Embedding(3, -1); });
  expect_error(Status::kInvalidArgument, "an embedding of 5 rows was called with indices from 1 to 7; expected 0 to 4",
               [] { std::make_shared<Embedding>(5, 3)->call(at::arange(1, 8)); });
  expect_error(Status::kInvalidArgument, "normalized_size is 0", [] { LayerNorm(0); });
  expect_error(Status::kInvalidArgument, "eps is -1", [] { RmsNorm(4, -1.0); });
  expect_error(Status::kInvalidArgument, "momentum is 2", [] { BatchNorm(4, 1e-5, 2.0); });
  expect_error(Status::kInvalidArgument, "probability is 1.5", [] { Dropout(1.5); });
  expect_error(Status::kInvalidArgument, "not divisible", [] { SelfAttention(9, 2, false, true, 0.0); });
  expect_error(Status::kInvalidArgument, "groups is 3", [] { Conv2d({4, 6, 3, 1, 0, 3}, true); });
  expect_error(Status::kInvalidArgument, "padding is -1", [] { Conv2d({4, 6, 3, 1, -1, 1}, true); });
}

TEST(NnLayers, RefuseBadInputs) {
  const auto call = [](const ModulePtr& layer, const at::Tensor& input) { return [=] { layer->call(input); }; };
  expect_error(Status::kTypeMismatch, "int64", call(std::make_shared<Embedding>(3, 2), at::ones({2})));
  expect_error(Status::kShapeMismatch, "[2, 3]",
               call(std::make_shared<SelfAttention>(4, 2, false, true, 0.0), at::ones({2, 3})));
  expect_error(Status::kShapeMismatch, "[batch, 4, ...]", call(std::make_shared<BatchNorm>(4), at::ones({2, 3})));
  expect_error(Status::kShapeMismatch, "more than one value", call(std::make_shared<BatchNorm>(4), at::ones({1, 4})));
}

TEST(NnLayers, ActivationsByName) {
  const at::Tensor input = at::tensor({-1.0, 0.5, 2.0});
  EXPECT_EQ(Activation("relu").kind(), "ReLU");
  expect_close(std::make_shared<Activation>("relu")->call(input), input.relu(), 0);
  expect_close(std::make_shared<Activation>("gelu")->call(input), at::gelu(input, "none"), 0);
  expect_close(std::make_shared<Activation>("gelu_new")->call(input), at::gelu(input, "tanh"), 0);
  expect_close(std::make_shared<Activation>("silu")->call(input), input * input.sigmoid(), 1e-7);
  expect_close(std::make_shared<Activation>("tanh")->call(input), input.tanh(), 0);
  expect_close(std::make_shared<Activation>("sigmoid")->call(input), input.sigmoid(), 0);
  expect_error(Status::kNotFound, "'swoosh' is not known; expected one of relu, gelu", [] { Activation("swoosh"); });
}

TEST(NnLayers, BatchNormKeepsRunningStatistics) {
  const auto layer = std::make_shared<BatchNorm>(2);
  const at::Tensor input = at::tensor({1.0, 3.0, 3.0, 7.0}, at::kFloat).reshape({2, 2});
  layer->call(input);
  expect_close(nn::find_tensor(*layer, "running_mean"), at::tensor({0.2, 0.5}, at::kDouble), 1e-6);
  expect_close(nn::find_tensor(*layer, "running_var"), at::tensor({1.1, 1.7}, at::kDouble), 1e-6);
  EXPECT_EQ(nn::find_tensor(*layer, "num_batches_tracked").item<int64_t>(), 1);
  layer->train(false);
  layer->call(input);
  EXPECT_EQ(nn::find_tensor(*layer, "num_batches_tracked").item<int64_t>(), 1);
}

TEST(NnLayers, DropoutScalesWhatItKeeps) {
  at::manual_seed(1);
  const auto layer = std::make_shared<Dropout>(0.5);
  const at::Tensor output = layer->call(at::ones({1000}));
  EXPECT_TRUE(output.eq(0).logical_or(output.eq(2)).all().item<bool>());
  EXPECT_NEAR(output.mean().item<double>(), 1.0, 0.2);
}

TEST(NnLayers, Conv1dIsALinearLayerWithTheOtherLayout) {
  const at::Tensor weight = tests::pattern_tensor({3, 2}, 4), bias = tests::pattern_tensor({2}, 5);
  const at::Tensor input = tests::pattern_tensor({2, 4, 3}, 6);
  expect_close(std::make_shared<Conv1d>(weight, bias)->call(input), at::linear(input, weight.t(), bias), 1e-6);
}

// The gradient of the projection, first and second, whether the heads' gradients are slices of one tensor or not, and
// where some heads have none.
TEST(NnLayers, SplitHeadsHasTheGradientOfItsViews) {
  at::manual_seed(5);
  const at::Tensor projected = at::randn({2, 7, 3 * 4 * 5}, at::kDouble).requires_grad_();
  const auto views = [&] {
    const std::vector<at::Tensor> parts = projected.view({2, 7, 3, 4, 5}).permute({2, 0, 3, 1, 4}).unbind(0);
    return Heads{parts[0], parts[1], parts[2]};
  };
  const auto uses = {
      +[](const Heads& heads) { return heads.query * heads.key + heads.value.sin(); },
      +[](const Heads& heads) { return heads.key.square(); },
      +[](const Heads& heads) { return heads.value.matmul(heads.query.transpose(-1, -2)); },
  };
  for (const auto& use : uses) {
    const auto gradients = [&](const Heads& heads) {
      const at::Tensor first = torch::autograd::grad({use(heads).square().sum()}, {projected}, {}, true, true)[0];
      return std::pair{first, torch::autograd::grad({first.square().sum()}, {projected})[0]};
    };
    const auto [expected, expected_second] = gradients(views());
    const auto [found, found_second] = gradients(split_heads(projected, 5));
    EXPECT_EQ(found.strides(), projected.strides());
    expect_close(found, expected, 1e-12);
    expect_close(found_second, expected_second, 1e-12);
  }
}

// As kernels/attention/tiled_attention.hpp writes them: no copy is made of slices.
TEST(NnLayers, SplitHeadsPassesSlicesOn) {
  at::manual_seed(6);
  const at::Tensor projected = at::randn({2, 7, 3 * 4 * 5}).requires_grad_();
  const Heads heads = split_heads(projected, 5);
  const at::Tensor whole = at::randn({2, 7, 3 * 4 * 5});
  const std::vector<at::Tensor> parts = whole.view({2, 7, 3, 4, 5}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor gradient =
      torch::autograd::grad({heads.query, heads.key, heads.value}, {projected}, {parts[0], parts[1], parts[2]})[0];
  EXPECT_TRUE(gradient.is_alias_of(whole));
  EXPECT_TRUE(gradient.equal(whole));
  const Heads again = split_heads(projected, 5);
  const at::Tensor swapped =
      torch::autograd::grad({again.query, again.key, again.value}, {projected}, {parts[1], parts[0], parts[2]})[0];
  EXPECT_FALSE(swapped.is_alias_of(whole));
  EXPECT_TRUE(swapped.slice(2, 0, 20).equal(whole.slice(2, 20, 40)));
}

TEST(NnLayers, EmptySequentialPassesItsInput) {
  const auto model = std::make_shared<Sequential>(std::vector<ModulePtr>{});
  EXPECT_EQ(model->call(at::ones({3})).numel(), 3);
  expect_error(Status::kInvalidArgument, "0 inputs", [&] { model->call(Inputs{}); });
}

}  // namespace nn_layers_test
}  // namespace accel::nn
