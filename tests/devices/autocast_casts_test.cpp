// SPDX-License-Identifier: Apache-2.0
// Under autocast on a device a weight is cast once for an update, all of them by one kernel, and an activation once;
// the numbers are those of autocast without any of it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <vector>

#include "config/generated/choices/precision.hpp"
#include "device_fixture.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"
#include "precision/autocast.hpp"
#include "precision/autocast_weight_cache.hpp"

namespace accel::precision {
namespace autocast_casts_test {

constexpr int64_t kBlocks = 3, kHeadSize = 16, kLength = 8;

class AutocastCasts : public tests::DeviceTest {
 protected:
  static int64_t casts() {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.casts;
  }

  struct Numbers {
    std::vector<at::Tensor> values;          // losses and gradients of all steps, then the weights
    std::vector<int64_t> forward, backward;  // casts of each step
  };
  // With or without casts that are kept and shared.
  static Numbers train(const std::string& config, bool keeps, int steps = 3) {
    at::manual_seed(5);
    const nn::ModulePtr model = nn::module_from_config(config);
    model->to(std::nullopt, device());
    const at::Tensor tokens = at::arange(2 * kLength, device()).remainder(13).view({2, kLength});
    const auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 1e-2}});
    optimizer->add_group(model->parameters(), std::nullopt, std::nullopt);
    AutocastWeightCache kept(device_type());
    Numbers numbers;
    for (int step = 0; step < steps; step++) {
      kept.start_accumulation_window();
      const int64_t before = is_simulated() ? casts() : 0;
      at::Tensor loss;
      {
        const AutocastWeightCache::Scope scope(keeps ? &kept : nullptr);
        const AutocastGuard autocast(Precision::kBf16, device_type());
        const at::Tensor scores = model->call(tokens);
        loss = at::cross_entropy_loss(scores.flatten(0, 1), tokens.flatten());
      }
      const int64_t between = is_simulated() ? casts() : 0;
      loss.backward();
      numbers.forward.push_back(between - before);
      numbers.backward.push_back(is_simulated() ? casts() - between : 0);
      numbers.values.push_back(loss.detach().cpu());
      for (const at::Tensor& parameter : model->parameters()) numbers.values.push_back(parameter.grad().cpu());
      optimizer->step();
      optimizer->zero_grad(/*set_to_none=*/true);
    }
    for (const at::Tensor& parameter : model->parameters()) numbers.values.push_back(parameter.detach().cpu());
    return numbers;
  }
  static void expect_equal(const Numbers& numbers, const Numbers& expected) {
    ASSERT_EQ(numbers.values.size(), expected.values.size());
    for (size_t i = 0; i < expected.values.size(); i++)
      EXPECT_TRUE(numbers.values[i].equal(expected.values[i])) << "tensor " << i;
  }

  struct Counts {
    int64_t forward, backward;
  };
  // Casts within attention, which no kernel of the device fuses.
  static Counts casts_of_attention() {
    const auto heads = [] {
      return at::randn({2, 4, kLength, kHeadSize}, device()).to(at::kBFloat16).requires_grad_();
    };
    const at::Tensor query = heads(), key = heads(), value = heads();
    const int64_t before = casts();
    const at::Tensor mixed = at::scaled_dot_product_attention(query, key, value, {}, 0.0, /*is_causal=*/true);
    const int64_t between = casts();
    mixed.backward(mixed.detach());
    return {between - before, casts() - between};
  }
};

const char* const kGpt2 = R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 13,
  "n_positions": 8, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";
const char* const kLlama = R"({"model_type": "llama", "vocab_size": 13, "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4})";

TEST_F(AutocastCasts, ChangeNoNumbers) {
  for (const char* config : {kGpt2, kLlama}) expect_equal(train(config, true), train(config, false));
}

TEST_F(AutocastCasts, OfAStepOfGpt2AreOneForWeightsAndOneForTheInputOfALayer) {
  NEEDS_SIMULATION("counts of casts");
  const Counts attention = casts_of_attention();
  const Numbers kept = train(kGpt2, true), plain = train(kGpt2, false);
  // The norms' outputs, for two layers of a block and the last one; the scores for the loss; the weights.
  EXPECT_EQ(kept.forward.back(), 2 * kBlocks + 1 + 1 + 1 + attention.forward * kBlocks);
  const int64_t weights = 8 * kBlocks + 1;  // with biases, and the last layer's
  EXPECT_EQ(plain.forward.back() - kept.forward.back(), weights - 1);
  // Of weights, of what was cast, and of the two branches that are added to a block's input.
  EXPECT_EQ(kept.backward.back(), weights + 2 * kBlocks + 1 + 1 + 2 * kBlocks + attention.backward * kBlocks);
  EXPECT_EQ(plain.backward.back(), kept.backward.back());
}

TEST_F(AutocastCasts, OfAnActivationAreSharedByItsReaders) {
  NEEDS_SIMULATION("counts of casts");
  const Counts attention = casts_of_attention();
  const Numbers kept = train(kLlama, true), plain = train(kLlama, false);
  // One for query, key and value, one for the two layers that read the norm's output, and the turned query and key;
  // beside those of GPT-2 one of the positions.
  EXPECT_EQ(kept.forward.back(), (2 + 2 + attention.forward) * kBlocks + 1 + 1 + 1 + 1);
  const int64_t weights = 7 * kBlocks + 1;
  EXPECT_EQ(plain.forward.back() - kept.forward.back(), weights - 1 + 3 * kBlocks);
  EXPECT_EQ(plain.backward.back(), kept.backward.back());
}

// Of the second and later micro-batches of a window there is none.
TEST_F(AutocastCasts, OfWeightsAreOneLaunchForAnUpdate) {
  NEEDS_SIMULATION("counts of casts");
  constexpr int kLayers = 20;
  std::vector<at::Tensor> weights;
  for (int layer = 0; layer < kLayers; layer++) weights.push_back(at::randn({8, 8}, device()).requires_grad_());
  const at::Tensor input = at::randn({4, 8}, device()).to(at::kBFloat16);
  AutocastWeightCache kept(device_type());
  std::vector<int64_t> counts;
  std::vector<const void*> places;
  for (int update = 0; update < 3; update++) {
    kept.start_accumulation_window();
    for (int micro_batch = 0; micro_batch < 2; micro_batch++) {
      const int64_t before = casts();
      const AutocastWeightCache::Scope scope(&kept);
      const AutocastGuard autocast(Precision::kBf16, device_type());
      at::Tensor output = input;
      for (const at::Tensor& weight : weights) output = at::linear(output, weight);
      counts.push_back(casts() - before);
      places.push_back(kept.cast(weights[3], at::kBFloat16).const_data_ptr());
    }
    for (const at::Tensor& weight : weights) weight.detach().mul_(0.5);
  }
  EXPECT_EQ(counts, (std::vector<int64_t>{kLayers, 0, 1, 0, 1, 0})) << "the first time none is known";
  EXPECT_EQ(places[0], places.back()) << "in the same memory";
}

TEST_F(AutocastCasts, OfAGraphThatIsStillThereAreLeftToIt) {
  const at::Tensor weight = at::randn({8, 8}, device()).requires_grad_();
  const at::Tensor other = at::randn({8, 8}, device()).requires_grad_();
  const at::Tensor input = at::randn({4, 8}, device()).requires_grad_();
  const auto gradient = [&](AutocastWeightCache* kept) {
    const at::Tensor values = weight.detach().clone();
    const auto forward = [&] {
      const AutocastWeightCache::Scope scope(kept);
      const AutocastGuard autocast(Precision::kBf16, device_type());
      return at::linear(at::linear(input, weight), other).to(at::kFloat).square().mean();
    };
    const at::Tensor early = forward();
    weight.detach().mul_(2);
    forward();
    early.backward();  // by the weights as they were
    weight.detach().copy_(values);
    const at::Tensor found = input.grad().cpu();
    for (const at::Tensor& tensor : {weight, other, input}) tensor.mutable_grad().reset();
    return found;
  };
  AutocastWeightCache kept(device_type());
  EXPECT_TRUE(gradient(&kept).equal(gradient(nullptr)));
}

}  // namespace autocast_casts_test
}  // namespace accel::precision
