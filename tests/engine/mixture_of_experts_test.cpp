// SPDX-License-Identifier: Apache-2.0
// A mixture of experts computes what its formula says, token by token.
#include "nn/layers/mixture_of_experts.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "expect_error.hpp"
#include "nn/layers/grouped_product.hpp"
#include "nn/layers/token_order.hpp"

namespace accel::nn {
namespace mixture_of_experts_test {

using tests::expect_error;

constexpr int64_t kHidden = 6, kIntermediate = 5, kExperts = 4;

at::Tensor numbers(const std::vector<int64_t>& sizes, double seed) {
  return at::linspace(-40.0 * seed, 53.0, c10::multiply_integers(sizes), at::kDouble).sin().view(sizes);
}

std::shared_ptr<MixtureOfExperts> make_layer(int64_t per_token, double balance_rate = 0) {
  const auto layer =
      std::make_shared<MixtureOfExperts>(MixtureSettings{kHidden, kIntermediate, kExperts, per_token, balance_rate});
  layer->to(at::kDouble, std::nullopt);
  const at::NoGradGuard no_grad;
  double seed = 0.3;
  for (const at::Tensor& parameter : layer->parameters())
    parameter.copy_(numbers(parameter.sizes().vec(), seed += 0.2));
  return layer;
}

// The experts of a token, best first, by the scores and what is added to them for the choice.
std::vector<int64_t> best(const at::Tensor& shares, int64_t count) {
  const at::Tensor order = shares.argsort(0, /*descending=*/true);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < count; i++) found.push_back(order[i].item<int64_t>());
  return found;
}

// One token after the other; of each expert the first `most` tokens.
at::Tensor one_by_one(const MixtureOfExperts& layer, const at::Tensor& input, int64_t most = 1000) {
  const auto weights = layer.parameters();
  std::vector<int64_t> taken(kExperts, 0);
  std::vector<at::Tensor> rows;
  const at::Tensor tokens = input.reshape({-1, kHidden});
  for (int64_t i = 0; i < tokens.size(0); i++) {
    const at::Tensor token = tokens[i], shares = at::softmax(at::linear(token, weights[0]), 0);
    const std::vector<int64_t> experts = best(shares, layer.experts_per_token());
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const int64_t expert : experts) sum = sum + shares[expert];
    at::Tensor row = at::zeros({kHidden}, at::kDouble);
    for (const int64_t expert : experts) {
      if (taken[static_cast<size_t>(expert)]++ >= most) continue;
      const auto halves = at::linear(token, weights[1][expert]).chunk(2);
      row = row + at::linear(at::silu(halves[0]) * halves[1], weights[2][expert]) * (shares[expert] / sum);
    }
    rows.push_back(row);
  }
  return at::stack(rows).view(input.sizes());
}

void expect_same_gradients(const at::Tensor& found, const at::Tensor& expected, const std::vector<at::Tensor>& leaves) {
  EXPECT_TRUE(at::allclose(found, expected, 1e-10, 1e-12));
  const at::Tensor seed = numbers(found.sizes().vec(), 0.7);
  const auto own = torch::autograd::grad({found}, leaves, {seed});
  const auto wanted = torch::autograd::grad({expected}, leaves, {seed});
  for (size_t i = 0; i < leaves.size(); i++) EXPECT_TRUE(at::allclose(own[i], wanted[i], 1e-9, 1e-11)) << i;
}

TEST(MixtureOfExperts, IsTheWeightedSumOfTheBestExperts) {
  for (const int64_t per_token : {1, 2, 4}) {
    const auto layer = make_layer(per_token);
    const at::Tensor input = numbers({3, 5, kHidden}, 1.1).requires_grad_();
    std::vector<at::Tensor> leaves = layer->parameters();
    leaves.push_back(input);
    expect_same_gradients(layer->call(input), one_by_one(*layer, input), leaves);
  }
}

TEST(MixtureOfExperts, TakesTheFirstTokensUpToItsCapacity) {
  const auto layer = make_layer(2);
  layer->set_capacity_factor(0.5);  // 15 tokens with 2 experts each: 7.5 on average
  const at::Tensor input = numbers({15, kHidden}, 1.1).requires_grad_();
  std::vector<at::Tensor> leaves = layer->parameters();
  leaves.push_back(input);
  const at::Tensor expected = one_by_one(*layer, input, 4);
  EXPECT_FALSE(at::allclose(expected, one_by_one(*layer, input)));
  expect_same_gradients(layer->call(input), expected, leaves);
  expect_error(Status::kInvalidArgument, "capacity_factor is -1", [&] { layer->set_capacity_factor(-1); });
}

TEST(MixtureOfExperts, HasGradientsOfZerosWithoutTokens) {
  const auto layer = make_layer(2);
  const at::Tensor input = at::empty({2, 0, kHidden}, at::kDouble).requires_grad_();
  const at::Tensor output = layer->call(input);
  EXPECT_EQ(output.sizes().vec(), input.sizes().vec());
  output.sum().backward();
  for (const at::Tensor& parameter : layer->experts()->parameters()) {
    ASSERT_TRUE(parameter.grad().defined());
    EXPECT_EQ(parameter.grad().count_nonzero().item<int64_t>(), 0);
  }
}

// An expert with too many tokens loses some of them, and what it gives to the others stays as it is.
TEST(MixtureOfExperts, BiasesMoveTokensToOtherExperts) {
  const auto layer = make_layer(1, 0.01);
  {
    const at::NoGradGuard no_grad;
    layer->parameters()[0].select(0, 2).add_(0.7);
  }
  const at::Tensor input = numbers({40, kHidden}, 1.1).abs();
  const auto load_of = [&](int64_t expert) {
    const at::Tensor shares = at::softmax(at::linear(input, layer->parameters()[0]), 1) + layer->buffer(0);
    return shares.argmax(1).eq(expert).sum().item<int64_t>();
  };
  const int64_t first_load = load_of(2);
  EXPECT_GT(first_load, 30);
  int calls = 0;
  for (int step = 0; step < 60; step++) {
    layer->call(input);
    layer->balance([&](const at::Tensor& tokens) {
      calls++;
      EXPECT_EQ(tokens.sum().item<double>(), 40);
    });
  }
  EXPECT_EQ(calls, 60);
  EXPECT_LT(load_of(2), first_load / 2);
  EXPECT_LT(layer->buffer(0)[2].item<double>(), 0);
  layer->train(false);
  layer->call(input);
  layer->balance([](const at::Tensor& tokens) { EXPECT_EQ(tokens.sum().item<double>(), 0); });
}

// What an expert has no room for counts, too: all experts might be full, and none would get fewer tokens.
TEST(MixtureOfExperts, BalancesByTheChoiceWhereTokensAreDropped) {
  const auto layer = make_layer(1, 0.01);
  {
    const at::NoGradGuard no_grad;
    layer->parameters()[0].select(0, 2).add_(0.7);
  }
  layer->set_capacity_factor(0.5);
  layer->call(numbers({40, kHidden}, 1.1).abs());
  layer->balance([](const at::Tensor& tokens) {
    EXPECT_EQ(tokens.sum().item<double>(), 40);
    EXPECT_GT(tokens[2].item<double>(), 30);
  });
  EXPECT_LT(layer->buffer(0)[2].item<double>(), 0);
}

// Ranks exchange the rows as they are computed with.
TEST(MixtureOfExperts, RowsAreCastUnderAutocast) {
  class Observed final : public ExpertRanks {
   public:
    DispatchedTokens dispatch(const at::Tensor& rows, const std::vector<int64_t>& counts) const override {
      EXPECT_EQ(rows.scalar_type(), at::kBFloat16);
      return {rows, {counts}};
    }
    at::Tensor combine(const at::Tensor& results, const std::vector<int64_t>&, const ExpertCounts&) const override {
      EXPECT_EQ(results.scalar_type(), at::kBFloat16);
      return results;
    }
  };
  const auto layer = make_layer(2);
  layer->to(at::kFloat, std::nullopt);
  const at::Tensor input = numbers({7, kHidden}, 1.1).to(at::kFloat).requires_grad_();
  const at::Tensor expected = layer->call(input);
  layer->set_ranks(std::make_shared<Observed>());
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor found = layer->call(input);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_TRUE(at::allclose(found.to(at::kFloat), expected, 0.1, 0.05));
  found.sum().backward();
  EXPECT_EQ(input.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(layer->experts()->parameter(0).grad().scalar_type(), at::kFloat);
}

TEST(MixtureOfExperts, RefusesWhatDoesNotFit) {
  const auto make = [](const MixtureSettings& settings) { return MixtureOfExperts(settings).num_experts(); };
  expect_error(Status::kInvalidArgument, "experts_per_token is 5; expected 1 to 4", [&] { make({6, 5, 4, 5}); });
  expect_error(Status::kInvalidArgument, "num_experts is 0", [&] { make({6, 5, 0, 1}); });
  expect_error(Status::kInvalidArgument, "hidden_size is 0", [&] { make({0, 5, 4, 1}); });
  expect_error(Status::kInvalidArgument, "balance_rate is -1", [&] { make({6, 5, 4, 1, -1}); });
  expect_error(Status::kShapeMismatch, "[3, 5]; expected [..., 6]", [] {
    make_layer(1)->call(at::zeros({3, 5}, at::kDouble));
  });
  expect_error(Status::kShapeMismatch, "2 counts with the sum 3", [] {
    grouped_product(at::zeros({4, 2}), at::zeros({2, 3, 2}), {1, 2});
  });
}

// The maps of tokens have derivatives of any order; the products say that they have one only.
TEST(MixtureOfExperts, MapsOfTokensHaveSecondDerivatives) {
  const auto order = TokenOrder::create(at::tensor({2, 0, 1, 2, 0, 1}, at::kLong).view({3, 2}), 3);
  const at::Tensor tokens = numbers({3, 2}, 0.9).requires_grad_();
  const auto cubes = [&](const at::Tensor& x) { return order->to_places(order->spread(x).pow(3)).sum(); };
  const auto first = torch::autograd::grad({cubes(tokens)}, {tokens}, {}, std::nullopt, /*create_graph=*/true)[0];
  EXPECT_TRUE(at::allclose(first, 6 * tokens.pow(2)));
  EXPECT_TRUE(at::allclose(torch::autograd::grad({first.sum()}, {tokens})[0], 12 * tokens));
  const at::Tensor rows = numbers({2, 3}, 0.4).requires_grad_(), weight = numbers({1, 2, 3}, 0.6).requires_grad_();
  const auto product = grouped_product(rows, weight, {2}).pow(2).sum();
  const auto gradient = torch::autograd::grad({product}, {rows}, {}, std::nullopt, /*create_graph=*/true)[0];
  expect_error(Status::kUnsupported, "no second derivative", [&] { gradient.sum().backward(); });
}

}  // namespace mixture_of_experts_test
}  // namespace accel::nn
