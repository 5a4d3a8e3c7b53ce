// SPDX-License-Identifier: Apache-2.0
// Products that read one activation under autocast share its cast; the numbers are those without.
#include "precision/activation_casts.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <vector>

#include "config/generated/choices/precision.hpp"
#include "precision/autocast.hpp"
#include "precision/autocast_weight_cache.hpp"

namespace accel::precision {
namespace activation_casts_test {

constexpr auto kCpu = c10::DeviceType::CPU;
using Tensors = std::vector<at::Tensor>;

at::Tensor numbers(at::IntArrayRef sizes, double first = -1) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::linspace(first, 1, count).view(sizes).clone().requires_grad_();
}

TEST(ActivationCasts, AreFoundWhileTheyAreHeldAndCurrent) {
  ActivationCasts casts;
  const at::Tensor activation = numbers({4, 8}).detach();
  EXPECT_FALSE(casts.find(activation, at::kBFloat16).defined());
  at::Tensor values = activation.to(at::kBFloat16);
  casts.remember(activation, values);
  const at::Tensor found = casts.find(activation, at::kBFloat16);
  EXPECT_TRUE(found.is_alias_of(values));
  EXPECT_FALSE(found.is_same(values)) << "each reader's is its own in the graph";
  EXPECT_FALSE(casts.find(activation, at::kHalf).defined());
  EXPECT_FALSE(casts.find(activation.clone(), at::kBFloat16).defined());
  values.reset();
  EXPECT_FALSE(casts.find(activation, at::kBFloat16).defined()) << "kept alive";
}

TEST(ActivationCasts, GoWhenEitherChanges) {
  ActivationCasts casts;
  const at::Tensor activation = numbers({4, 8}).detach(), values = activation.to(at::kBFloat16);
  casts.remember(activation, values);
  activation[1].mul_(2);
  EXPECT_FALSE(casts.find(activation, at::kBFloat16).defined());
  const at::Tensor other = activation.to(at::kBFloat16);
  casts.remember(activation, other);
  casts.find(activation, at::kBFloat16).zero_();
  EXPECT_FALSE(casts.find(activation, at::kBFloat16).defined());
  const at::Tensor third = activation.to(at::kBFloat16);
  casts.remember(activation, third);
  activation.set_data(activation.mul(2));
  EXPECT_FALSE(casts.find(activation, at::kBFloat16).defined()) << "in other memory";
}

TEST(ActivationCasts, AreNotKeptWithoutAGraph) {
  ActivationCasts casts;
  const at::NoGradGuard no_grad;
  const at::Tensor activation = numbers({4, 8}).detach(), values = activation.to(at::kBFloat16);
  casts.remember(activation, values);
  EXPECT_FALSE(casts.find(activation, at::kBFloat16).defined());
}

TEST(ActivationCasts, OnlyTheLatestAreKnown) {
  ActivationCasts casts;
  Tensors activations, values;
  for (int i = 0; i < 20; i++) {
    activations.push_back(numbers({4, 8}, i).detach());
    values.push_back(activations.back().to(at::kBFloat16));
    casts.remember(activations.back(), values.back());
  }
  EXPECT_FALSE(casts.find(activations.front(), at::kBFloat16).defined());
  for (size_t i = 16; i < 20; i++) EXPECT_TRUE(casts.find(activations[i], at::kBFloat16).is_alias_of(values[i]));
}

// Query, key and value of one input: outputs and gradients have the bits of three casts.
Tensors project(AutocastWeightCache* kept) {
  const at::Tensor input = numbers({4, 8});
  const Tensors weights = {numbers({8, 8}, -2), numbers({8, 8}, -3), numbers({8, 8}, -4)};
  Tensors results;
  at::Tensor sum;
  {
    const AutocastWeightCache::Scope scope(kept);
    const AutocastGuard autocast(Precision::kBf16, kCpu);
    const at::Tensor hidden = input.mul(3);
    for (const at::Tensor& weight : weights) {
      const at::Tensor output = at::linear(hidden, weight);
      results.push_back(output.detach());
      const at::Tensor loss = output.to(at::kFloat).square().sum();
      sum = sum.defined() ? sum.add(loss) : loss;
    }
  }
  sum.backward();
  results.push_back(input.grad());
  for (const at::Tensor& weight : weights) results.push_back(weight.grad());
  return results;
}

TEST(ActivationCasts, ChangeNoNumbers) {
  AutocastWeightCache kept(kCpu);
  const Tensors shared = project(&kept), plain = project(nullptr);
  for (size_t i = 0; i < plain.size(); i++) EXPECT_TRUE(shared[i].equal(plain[i])) << i;
}

TEST(ActivationCasts, AreMadeAnewForAnInputThatChanges) {
  AutocastWeightCache kept(kCpu);
  const at::Tensor weight = numbers({8, 8});
  const auto outputs = [&](AutocastWeightCache* casts) {
    const AutocastWeightCache::Scope scope(casts);
    const AutocastGuard autocast(Precision::kBf16, kCpu);
    const at::Tensor input = numbers({4, 8}).detach();
    const at::Tensor first = at::linear(input, weight);
    input.mul_(2);
    return Tensors{first, at::linear(input, weight)};
  };
  const Tensors shared = outputs(&kept), plain = outputs(nullptr);
  for (size_t i = 0; i < plain.size(); i++) EXPECT_TRUE(shared[i].equal(plain[i])) << i;
}

// einsum() of one operand returns a view of its cast.
TEST(ActivationCasts, AWriteThroughAResultIsSeen) {
  AutocastWeightCache kept(kCpu);
  const at::Tensor weight = numbers({8, 8}), input = numbers({4, 8});
  const auto output = [&](AutocastWeightCache* casts) {
    const AutocastWeightCache::Scope scope(casts);
    const AutocastGuard autocast(Precision::kBf16, kCpu);
    const at::Tensor hidden = input.mul(3);
    at::Tensor turned = at::einsum("ij->ji", {hidden});
    turned.mul_(2);
    return at::linear(hidden, weight);
  };
  EXPECT_TRUE(output(&kept).equal(output(nullptr)));
}

}  // namespace activation_casts_test
}  // namespace accel::precision
