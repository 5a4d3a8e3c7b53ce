// SPDX-License-Identifier: Apache-2.0
// The recipe of fp8: which layers it covers, where their products are computed in 8 bits, and what the scales come
// from.
#include "nn/low_precision/fp8_layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/generated/choices/fp8_amax_algorithm.hpp"
#include "config/generated/choices/fp8_scaling.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/autocast.hpp"
#include "expect_error.hpp"
#include "kernels/fp8/fp8_values.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/conv1d.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/low_precision/fp8_linear.hpp"
#include "nn/low_precision/fp8_routes.hpp"
#include "nn/module_walks.hpp"
#include "precision/autocast.hpp"
#include "tensor/autograd/saved_tensor_hooks.hpp"

namespace accel::nn {
namespace fp8_layers_test {

using tests::expect_error;

AutocastSettings no_autocast() {
  AutocastSettings settings;
  settings.enabled = false;
  return settings;
}

precision::Fp8Recipe recipe_of(Fp8Scaling scaling) {
  precision::Fp8Recipe recipe;
  recipe.scaling = scaling;
  recipe.skip_first_and_last = false;
  return recipe;
}

ModulePtr linear(int64_t features, int64_t outputs) { return std::make_shared<Linear>(features, outputs, true); }

ModulePtr five_layers() {
  return std::make_shared<Sequential>(std::vector<ModulePtr>{std::make_shared<Embedding>(64, 32), linear(32, 32),
                                                             linear(32, 40), linear(40, 32), linear(32, 24),
                                                             linear(24, 16)});
}

std::vector<std::string> names_of(const Fp8Selection& selection) {
  std::vector<std::string> names;
  for (const auto& [name, weight] : selection.layers) names.push_back(name);
  return names;
}

TEST(Fp8LayersSelection, FollowsTheRecipe) {
  const ModulePtr model = five_layers();
  precision::Fp8Recipe recipe = recipe_of(Fp8Scaling::kCurrent);
  Fp8Selection selection = select_fp8_layers(*model, recipe);
  EXPECT_EQ(names_of(selection), (std::vector<std::string>{"1", "3", "5"}));
  EXPECT_EQ(selection.skipped.at("2"), "its weight is [40, 32], whose sizes are no multiples of 16");
  EXPECT_EQ(selection.skipped.size(), 2u);
  recipe.pad_inner_dim = false;
  EXPECT_EQ(names_of(select_fp8_layers(*model, recipe)), std::vector<std::string>{"1"});
  recipe.pad_inner_dim = recipe.skip_first_and_last = true;
  selection = select_fp8_layers(*model, recipe);
  EXPECT_EQ(names_of(selection), std::vector<std::string>{"3"});
  EXPECT_EQ(selection.skipped.at("1"), "it is the first linear layer");
  EXPECT_EQ(selection.skipped.at("5"), "it is the last linear layer");
  recipe.skip_first_and_last = false;
  recipe.skip_names = "[13]";
  EXPECT_EQ(select_fp8_layers(*model, recipe).skipped.at("3"), "skip_names has it");
  recipe.skip_names.clear();
  recipe.filter = [](const std::string& name, const at::Tensor& weight) { return name != "3" && weight.dim() == 2; };
  EXPECT_EQ(names_of(select_fp8_layers(*model, recipe)), (std::vector<std::string>{"1", "5"}));
  recipe.skip_names = "(";
  expect_error(Status::kInvalidArgument, "skip_names is '(', which is no regular expression",
               [&] { select_fp8_layers(*model, recipe); });
}

TEST(Fp8LayersSelection, LeavesEmbeddingsOut) {
  const ModulePtr model = std::make_shared<Sequential>(
      std::vector<ModulePtr>{std::make_shared<Embedding>(64, 32), linear(32, 32), linear(32, 64)});
  nn::tie(*model, "2.weight", "0.weight");
  const Fp8Selection selection = select_fp8_layers(*model, recipe_of(Fp8Scaling::kCurrent));
  EXPECT_EQ(names_of(selection), std::vector<std::string>{"1"});
  EXPECT_EQ(selection.skipped.at("2"), "its weight is an embedding's, too");
}

TEST(Fp8LayersSelection, HasTheProductsOfAttention) {
  const ModulePtr model = std::make_shared<Sequential>(
      std::vector<ModulePtr>{std::make_shared<SelfAttention>(32, 4, /*causal=*/true, /*bias=*/true, /*dropout=*/0.0)});
  EXPECT_EQ(names_of(select_fp8_layers(*model, recipe_of(Fp8Scaling::kCurrent))),
            (std::vector<std::string>{"0.in_proj", "0.out_proj"}));
}

// A layer, and its recipe.
struct Covered {
  explicit Covered(const precision::Fp8Recipe& recipe, int64_t features = 48, int64_t outputs = 32)
      : model(std::make_shared<Sequential>(std::vector<ModulePtr>{linear(features, outputs)})),
        layers(make_fp8_layers(recipe, select_fp8_layers(*model, recipe), c10::Device(c10::kCPU))) {}

  at::Tensor weight() const { return find_tensor(*model, "0.weight"); }
  at::Tensor bias() const { return find_tensor(*model, "0.bias"); }
  template <typename Forward>
  at::Tensor run(const Forward& forward) const {
    const Fp8Layers::Scope scope(layers);
    const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
    return forward();
  }
  at::Tensor run(const at::Tensor& input) const {
    return run([&] { return model->call(input); });
  }

  const ModulePtr model;
  const std::shared_ptr<Fp8Layers> layers;
};

at::Tensor in_bfloat16(const Covered& covered, const at::Tensor& input) {
  const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
  return covered.model->call(input);
}

TEST(Fp8Layers, RouteProductsOfCoveredWeights) {
  const Covered covered(recipe_of(Fp8Scaling::kCurrent));
  const at::Tensor input = at::randn({6, 48}), weight = covered.weight(), bias = covered.bias();
  const at::Tensor expected = fp8_linear(input, weight, bias, "HYBRID").to(at::kBFloat16);
  const at::Tensor product = fp8_linear(input, weight, {}, "HYBRID").to(at::kBFloat16);
  const auto expect_routed = [&](const at::Tensor& found, const at::Tensor& wanted) {
    EXPECT_TRUE(at::equal(found, wanted));
    ASSERT_NE(found.grad_fn(), nullptr);
    EXPECT_EQ(found.grad_fn()->name(), "Fp8LinearBackward");
  };
  expect_routed(covered.run(input), expected);
  expect_routed(covered.run([&] { return at::linear(input, weight, bias); }), expected);
  expect_routed(covered.run([&] { return at::addmm(bias, input, weight.t()); }), expected);
  expect_routed(covered.run([&] { return at::matmul(input.view({2, 3, 48}), weight.t()); }), product.view({2, 3, 32}));
  expect_routed(covered.run([&] { return at::mm(input, weight.t()); }), product);
  EXPECT_TRUE(at::equal(covered.run([&] { return at::mm(input.to(at::kBFloat16), weight.t()); }),
                        fp8_linear(input.to(at::kBFloat16), weight, {}, "HYBRID")));
}

TEST(Fp8Layers, LeaveOtherProductsAlone) {
  const Covered covered(recipe_of(Fp8Scaling::kCurrent));
  const at::Tensor input = at::randn({6, 48}), other = at::randn({32, 48}).requires_grad_();
  const auto is_routed = [](const at::Tensor& output) { return output.grad_fn()->name() == "Fp8LinearBackward"; };
  EXPECT_FALSE(is_routed(covered.run([&] { return at::linear(input, other); })));
  EXPECT_FALSE(is_routed(covered.run([&] { return at::mm(input.slice(1, 0, 32), covered.weight()); }).sum()));
  EXPECT_FALSE(is_routed(covered.run([&] { return at::addmm(covered.bias(), input, covered.weight().t(), 2); })));
  EXPECT_FALSE(is_routed(in_bfloat16(covered, input)));
  const Fp8Layers::Scope without_autocast(covered.layers);
  EXPECT_FALSE(is_routed(covered.model->call(input)));
  EXPECT_EQ(covered.model->call(input).scalar_type(), at::kFloat);
}

TEST(Fp8Layers, GradientsAreThoseOfTheOperator) {
  const Covered covered(recipe_of(Fp8Scaling::kCurrent));
  const at::Tensor input = at::randn({4, 48}).requires_grad_(), gradient = at::randn({4, 32}).to(at::kBFloat16);
  const auto gradients = [&](const at::Tensor& output) {
    output.backward(gradient);
    const std::vector<at::Tensor> found = {input.grad().clone(), covered.weight().grad().clone(),
                                           covered.bias().grad().clone()};
    for (const at::Tensor& one : {input, covered.weight(), covered.bias()}) one.mutable_grad() = at::Tensor();
    return found;
  };
  const auto found = gradients(covered.run(input));
  at::Tensor output;
  {
    const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
    output = fp8_linear(input, covered.weight(), covered.bias(), "HYBRID");
  }
  const auto expected = gradients(output);
  for (size_t i = 0; i < found.size(); i++) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
}

double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kFloat) - expected.to(at::kFloat)).norm().item<double>() /
         expected.to(at::kFloat).norm().item<double>();
}

// Each scaling and both layouts of the weight, against products in float32.
TEST(Fp8Layers, AllScalingsAreCloseToTheProduct) {
  for (const Fp8Scaling scaling :
       {Fp8Scaling::kCurrent, Fp8Scaling::kDelayed, Fp8Scaling::kRowwise, Fp8Scaling::kBlockwise})
    for (const bool is_transposed : {false, true}) {
      const precision::Fp8Recipe recipe = recipe_of(scaling);
      const at::Tensor values = at::randn({96, 48});
      const ModulePtr layer = is_transposed ? ModulePtr(std::make_shared<Conv1d>(values.t().clone(), at::randn({96})))
                                            : ModulePtr(std::make_shared<Linear>(values.clone(), at::randn({96})));
      const auto layers = make_fp8_layers(recipe, select_fp8_layers(*layer, recipe), c10::Device(c10::kCPU));
      const at::Tensor input = at::randn({3, 32, 48}).requires_grad_(), gradient = at::randn({3, 32, 96});
      const auto run = [&](bool in_fp8) {
        const Fp8Layers::Scope scope(in_fp8 ? layers : nullptr);
        const precision::AutocastGuard autocast(in_fp8 ? Precision::kBf16 : Precision::kNo, c10::DeviceType::CPU);
        const at::Tensor output = layer->call(input);
        EXPECT_EQ(output.scalar_type(), in_fp8 ? at::kBFloat16 : at::kFloat);
        output.backward(gradient.to(output.scalar_type()));
        std::vector<at::Tensor> found = {output.detach(), input.grad(), layer->parameter(0).grad()};
        input.mutable_grad() = layer->parameter(0).mutable_grad() = at::Tensor();
        return found;
      };
      const auto found = run(true), expected = run(false);
      for (size_t i = 0; i < found.size(); i++) {
        EXPECT_LT(relative_error(found[i], expected[i]), i == 0 ? 0.05 : 0.08) << i;
        EXPECT_GT(relative_error(found[i], expected[i]), 0.005) << i << ": in 8 bits";
      }
    }
}

TEST(Fp8Layers, OverriddenProductsAreThoseOfBfloat16) {
  precision::Fp8Recipe recipe = recipe_of(Fp8Scaling::kCurrent);
  recipe.override_forward = recipe.override_input_gradient = recipe.override_weight_gradient = true;
  const Covered covered(recipe);
  const at::Tensor input = at::randn({8, 48}).requires_grad_();
  const auto run = [&](bool routed) {
    const at::Tensor output = routed ? covered.run(input) : in_bfloat16(covered, input);
    output.sum().backward();
    std::vector<at::Tensor> found = {output.detach(), input.grad(), covered.weight().grad()};
    input.mutable_grad() = covered.weight().mutable_grad() = covered.bias().mutable_grad() = at::Tensor();
    return found;
  };
  const auto found = run(true), expected = run(false);
  for (size_t i = 0; i < found.size(); i++) EXPECT_LT(relative_error(found[i], expected[i]), 4e-3) << i;
}

TEST(Fp8Layers, CastAWeightOnceUntilItChanges) {
  const Covered covered(recipe_of(Fp8Scaling::kCurrent));
  const at::Tensor input = at::randn({4, 48});
  const at::NoGradGuard no_grad;
  const at::Tensor first = covered.run(input);
  covered.weight().variable_data().mul_(-1);  // nobody is told
  EXPECT_TRUE(at::equal(covered.run(input), first));
  covered.weight().mul_(1);
  EXPECT_FALSE(at::equal(covered.run(input), first));
  covered.layers->keep_casts(false);
  const at::Tensor second = covered.run(input);
  covered.weight().variable_data().mul_(2);
  EXPECT_FALSE(at::equal(covered.run(input), second));
}

TEST(Fp8Layers, TakeACastThatIsGiven) {
  const Covered covered(recipe_of(Fp8Scaling::kCurrent));
  const at::Tensor input = at::randn({4, 48}), other = at::randn({32, 48});
  const at::NoGradGuard no_grad;
  covered.layers->give(covered.weight(),
                       kernels::quantize(other, at::kFloat8_e4m3fn, kernels::Fp8Granularity::kTensor));
  EXPECT_TRUE(at::equal(covered.run(input), fp8_linear(input, other, covered.bias(), "HYBRID").to(at::kBFloat16)));
}

// The scales of the input, the weight and the gradient, of the only layer.
std::vector<float> scales_of(const Fp8Layers& layers) {
  auto& histories = *const_cast<Fp8Layers&>(layers).histories();
  std::vector<float> scales;
  for (const Fp8Role role : {Fp8Role::kInput, Fp8Role::kWeight, Fp8Role::kGradient})
    scales.push_back(histories.of(0, role).scale.item<float>());
  return scales;
}

void step(const Covered& covered, float input, float gradient) {
  const at::Tensor output = covered.run(at::full({4, 48}, input).requires_grad_());
  output.backward(at::full(output.sizes(), gradient, output.options()));
  covered.layers->histories()->update(covered.layers->histories()->magnitudes().clone());
}

// The dtypes of the tensors with rows that operators keep for the backward, in a scope of layers.
std::vector<at::ScalarType> kept_by(const std::shared_ptr<Fp8Layers>& layers, const std::function<void()>& forward) {
  std::vector<at::ScalarType> kept;
  const tensor::SavedTensorHooks seen([&](const at::Tensor& saved) {
    if (saved.dim() >= 2 && saved.size(-1) >= 16) kept.push_back(saved.scalar_type());
    return nullptr;
  });
  const Fp8Layers::Scope scope(layers);
  const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
  forward();
  return kept;
}

bool are_in_8_bits(const std::vector<at::ScalarType>& kept) {
  return !kept.empty() && std::all_of(kept.begin(), kept.end(), [](at::ScalarType dtype) {
    return dtype == at::kFloat8_e4m3fn || dtype == at::kBool;
  });
}

std::shared_ptr<Fp8Layers> layers_that_compress(bool compresses) {
  precision::Fp8Recipe recipe = recipe_of(Fp8Scaling::kCurrent);
  recipe.compress_activations = compresses;
  const ModulePtr model = linear(32, 32);
  return make_fp8_layers(recipe, select_fp8_layers(*model, recipe), c10::Device(c10::kCPU));
}

TEST(Fp8LayersActivations, OperatorsKeepThemIn8Bits) {
  const at::Tensor x = at::randn({4, 6, 32}).requires_grad_(), y = at::randn({4, 6, 32}).requires_grad_();
  const at::Tensor weight = at::full({32}, 1.0), heads = at::randn({2, 3, 6, 16}).requires_grad_();
  const std::pair<const char*, std::function<at::Tensor()>> operators[] = {
      {"layer_norm", [&] { return at::layer_norm(x, {32}, weight, weight); }},
      {"gelu", [&] { return at::gelu(x); }},
      {"silu", [&] { return at::silu(x); }},
      {"gate", [&] { return x * y; }},
      {"dropout", [&] { return at::dropout(x, 0.5, true); }},
      {"attention", [&] { return at::scaled_dot_product_attention(heads, heads, heads); }},
  };
  const auto layers = layers_that_compress(true), without = layers_that_compress(false);
  for (const auto& [name, run] : operators) {
    SCOPED_TRACE(name);
    const std::function<at::Tensor()>& forward = run;
    EXPECT_TRUE(are_in_8_bits(kept_by(layers, [&] { forward(); })));
    EXPECT_FALSE(are_in_8_bits(kept_by(without, [&] { forward(); })));
    EXPECT_FALSE(are_in_8_bits(kept_by(layers, [&] {
      const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU, no_autocast());
      forward();
    })));
  }
  const at::Tensor table = at::randn({4, 6, 32});
  EXPECT_FALSE(are_in_8_bits(kept_by(layers, [&] { x* table; })));  // no gate
}

TEST(Fp8LayersActivations, GradientsAreThoseOfRoundedOnes) {
  const at::Tensor x = at::randn({8, 32}), gradient = at::randn({8, 32});
  const auto layers = layers_that_compress(true);
  const at::Tensor given = x.clone().requires_grad_(), doubled = given * 2;
  at::Tensor output;
  kept_by(layers, [&] { output = at::silu(doubled); });
  doubled.detach().zero_();  // the copy does not change
  output.backward(gradient);
  const auto rounded = kernels::quantize(x * 2, at::kFloat8_e4m3fn, kernels::Fp8Granularity::kRow);
  const at::Tensor expected = kernels::dequantize(rounded, at::kFloat).requires_grad_();
  at::silu(expected).backward(gradient);
  EXPECT_TRUE(at::equal(output, at::silu(x * 2)));
  EXPECT_TRUE(given.grad().allclose(expected.grad() * 2));
  EXPECT_FALSE(at::equal(expected, x * 2));
}

TEST(Fp8LayersDelayed, ScalesComeFromFormerSteps) {
  for (const auto algorithm : {Fp8AmaxAlgorithm::kMostRecent, Fp8AmaxAlgorithm::kMax}) {
    precision::Fp8Recipe recipe = recipe_of(Fp8Scaling::kDelayed);
    recipe.amax_algorithm = algorithm;
    recipe.amax_history_length = 3;
    recipe.margin = 1;
    const Covered covered(recipe);
    EXPECT_EQ(scales_of(*covered.layers)[0], 0);
    step(covered, 4, 0.5f);
    EXPECT_EQ(scales_of(*covered.layers)[0], 448.0f / 4 / 2);
    EXPECT_EQ(scales_of(*covered.layers)[2], 57344.0f / 0.5f / 2);
    const float weight = covered.weight().abs().max().item<float>();
    EXPECT_FLOAT_EQ(scales_of(*covered.layers)[1], 448.0f / weight / 2);
    step(covered, 1, 0.25f);
    const bool most_recent = algorithm == Fp8AmaxAlgorithm::kMostRecent;
    EXPECT_EQ(scales_of(*covered.layers)[0], most_recent ? 224.0f : 56.0f);
    step(covered, 1, 0.25f);
    step(covered, 1, 0.25f);  // 4 has left the history
    EXPECT_EQ(scales_of(*covered.layers)[0], 224.0f);
  }
}

TEST(Fp8LayersDelayed, ScalesChangeAtTheInterval) {
  precision::Fp8Recipe recipe = recipe_of(Fp8Scaling::kDelayed);
  recipe.interval = 3;
  const Covered covered(recipe);
  std::vector<float> found;
  for (const float input : {1.0f, 2.0f, 4.0f, 8.0f, 16.0f, 32.0f}) {
    step(covered, input, 1);
    found.push_back(scales_of(*covered.layers)[0]);
  }
  EXPECT_EQ(found, (std::vector<float>{448, 448, 112, 112, 112, 14}));
}

TEST(Fp8LayersDelayed, NumbersThatAreTooLargeAreCounted) {
  const Covered covered(recipe_of(Fp8Scaling::kDelayed));
  step(covered, 1, 1);
  EXPECT_EQ(covered.layers->overflows(), 0);
  step(covered, 1000, 1);  // the scale is that of 1
  EXPECT_EQ(covered.layers->overflows(), 4 * 48);
  step(covered, std::numeric_limits<float>::infinity(), 1);
  EXPECT_EQ(covered.layers->overflows(), 2 * 4 * 48);
  EXPECT_FLOAT_EQ(scales_of(*covered.layers)[0], 0.448f) << "as before: an infinity has no scale";
}

TEST(Fp8LayersDelayed, HistoriesAreSavedAndLoaded) {
  precision::Fp8Recipe recipe = recipe_of(Fp8Scaling::kDelayed);
  recipe.amax_history_length = 4;
  const Covered covered(recipe), other(recipe);
  step(covered, 2, 1);
  step(covered, 1, 1);
  const c10::IValue state = covered.layers->histories()->state_dict();
  other.layers->histories()->load_states({state});
  EXPECT_EQ(scales_of(*other.layers), scales_of(*covered.layers));
  recipe.amax_history_length = 5;
  const Covered longer(recipe);
  expect_error(Status::kInvalidArgument, "histories of fp8 of 4 steps and amax_history_length is 5",
               [&] { longer.layers->histories()->load_states({state}); });
  EXPECT_EQ(scales_of(*longer.layers)[0], 0);
}

}  // namespace fp8_layers_test
}  // namespace accel::nn
