// SPDX-License-Identifier: Apache-2.0
// Gradients of weights that are computed behind a backward.
#include "nn/deferred_products.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "config/generated/choices/precision.hpp"
#include "nn/layers/conv1d.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module.hpp"
#include "precision/autocast.hpp"
#include "precision/autocast_weight_cache.hpp"

namespace accel::nn {
namespace deferred_products_test {

at::Tensor ramp(at::IntArrayRef shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return at::sin(at::arange(numel, at::kDouble).mul(0.3)).view(shape).clone();  // no view, as parameters are
}

struct Gradients {
  std::vector<at::Tensor> parameters;
  at::Tensor input;
};

// The gradients of two layers, one behind the other, called twice. `split`: in two halves.
Gradients gradients_of(Module& first, Module& second, bool split, bool input_has_gradient) {
  std::vector<at::Tensor> parameters = first.parameters();
  for (const at::Tensor& parameter : second.parameters()) parameters.push_back(parameter);
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
  const at::Tensor input = ramp({2, 3, 4}).requires_grad_(input_has_gradient);
  const auto products = split ? DeferredProducts::create() : nullptr;
  at::Tensor loss;
  {
    const DeferredProducts::Scope scope(products);
    loss = second.call(at::tanh(first.call(input))).square().sum() + first.call(input * 2).sum();
  }
  loss.backward();
  if (split) {
    for (const at::Tensor& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
    products->complete();
    products->complete();  // nothing is left
  }
  Gradients gradients{{}, input.grad()};
  for (const at::Tensor& parameter : parameters) gradients.parameters.push_back(parameter.grad());
  return gradients;
}

void expect_equal_halves(Module& first, Module& second) {
  for (Module* module : {&first, &second}) module->to(at::kDouble, {});
  for (const bool input_has_gradient : {true, false}) {
    const Gradients whole = gradients_of(first, second, false, input_has_gradient);
    const Gradients halves = gradients_of(first, second, true, input_has_gradient);
    for (size_t index = 0; index < whole.parameters.size(); index++)
      EXPECT_TRUE(at::allclose(whole.parameters[index], halves.parameters[index], 1e-12, 1e-12)) << index;
    EXPECT_EQ(whole.input.defined(), halves.input.defined());
    if (input_has_gradient) {
      EXPECT_TRUE(at::allclose(whole.input, halves.input, 1e-12, 1e-12));
    }
  }
}

TEST(DeferredProducts, TheHalvesOfLinearLayersAreTheWhole) {
  for (const bool bias : {true, false}) {
    const auto first = std::make_shared<Linear>(4, 5, bias), second = std::make_shared<Linear>(5, 3, bias);
    expect_equal_halves(*first, *second);
  }
}

TEST(DeferredProducts, TheHalvesOfLayersWithTransposedWeights) {
  const auto first = std::make_shared<Conv1d>(ramp({4, 5}), ramp({5})),
             second = std::make_shared<Conv1d>(ramp({5, 3}), ramp({3}));
  expect_equal_halves(*first, *second);
}

// As autocast does with products at once: casts of the factors, gradients in the type of the parameters.
TEST(DeferredProducts, TheHalvesUnderAutocast) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16})
    for (const bool is_transposed : {false, true}) {
      const auto make = [&](int64_t inputs, int64_t outputs) -> ModulePtr {
        const ModulePtr layer = is_transposed
                                    ? ModulePtr(std::make_shared<Conv1d>(ramp({inputs, outputs}), ramp({outputs})))
                                    : ModulePtr(std::make_shared<Linear>(ramp({outputs, inputs}), ramp({outputs})));
        layer->to(at::kFloat, {});
        return layer;
      };
      const ModulePtr first = make(4, 5), second = make(5, 3);
      const at::Tensor input = ramp({2, 3, 4}).to(at::kFloat).requires_grad_();
      std::vector<std::vector<at::Tensor>> found;
      for (const bool split : {false, true}) {
        std::vector<at::Tensor> leaves = first->parameters();
        for (const at::Tensor& parameter : second->parameters()) leaves.push_back(parameter);
        for (const at::Tensor& leaf : leaves) leaf.mutable_grad() = at::Tensor();
        input.mutable_grad() = at::Tensor();
        const auto products = split ? DeferredProducts::create() : nullptr;
        precision::AutocastWeightCache casts(c10::DeviceType::CPU);
        at::Tensor output;
        {
          const DeferredProducts::Scope scope(products);
          const precision::AutocastWeightCache::Scope kept(&casts);
          const precision::AutocastGuard autocast(precision, c10::DeviceType::CPU);
          output = second->call(at::tanh(first->call(input)));
        }
        EXPECT_EQ(output.scalar_type(), precision == Precision::kBf16 ? at::kBFloat16 : at::kHalf);
        EXPECT_GE(casts.size(), 4U);  // the weights', once each
        output.to(at::kFloat).square().sum().backward();
        if (split) {
          for (const at::Tensor& leaf : leaves) EXPECT_FALSE(leaf.grad().defined());
          products->complete();
        }
        found.push_back({output, input.grad()});
        for (const at::Tensor& leaf : leaves) {
          EXPECT_EQ(leaf.grad().scalar_type(), at::kFloat);
          found.back().push_back(leaf.grad());
        }
      }
      for (size_t i = 0; i < found[0].size(); i++) EXPECT_TRUE(at::allclose(found[0][i], found[1][i], 1e-2, 1e-2)) << i;
    }
}

// As with a backward: hooks run once the gradient is there, and what is frozen gets none.
TEST(DeferredProducts, HooksAndFrozenWeights) {
  const at::Tensor weight = ramp({3, 4}).requires_grad_(), frozen = ramp({2, 3});
  std::vector<std::string> events;
  weight.register_hook([&events](const at::Tensor& gradient) {
    events.emplace_back("hook");
    return gradient * 2;
  });
  const auto products = DeferredProducts::create();
  const at::Tensor input = ramp({5, 4});
  at::Tensor output;
  {
    const DeferredProducts::Scope scope(products);
    output = at::linear(at::linear(input, weight), frozen);
  }
  output.sum().backward();
  EXPECT_TRUE(events.empty());
  products->complete();
  EXPECT_EQ(events, std::vector<std::string>{"hook"});
  const at::Tensor expected = at::matmul(at::ones({5, 2}, at::kDouble).matmul(frozen).t(), input) * 2;
  EXPECT_TRUE(at::allclose(weight.grad(), expected));
  EXPECT_FALSE(frozen.grad().defined());
}

// Several micro-batches add up in one memory, where nobody hears of a gradient; a graph may use a weight twice.
TEST(DeferredProducts, GradientsAddUpInPlace) {
  const at::Tensor weight = ramp({4, 4}).requires_grad_(), like = ramp({4, 4}).requires_grad_();
  const void* memory = nullptr;
  for (int micro_batch = 0; micro_batch < 3; micro_batch++) {
    const at::Tensor input = ramp({5, 4}) + micro_batch;
    const auto products = DeferredProducts::create();
    at::Tensor output;
    {
      const DeferredProducts::Scope scope(products);
      output = at::linear(at::tanh(at::linear(input, weight)), weight);
    }
    output.square().sum().backward();
    products->complete();
    at::linear(at::tanh(at::linear(input, like)), like).square().sum().backward();
    EXPECT_TRUE(at::allclose(weight.grad(), like.grad(), 1e-12, 1e-12)) << micro_batch;
    EXPECT_FALSE(weight.grad().requires_grad());
    if (memory != nullptr) {
      EXPECT_EQ(weight.grad().const_data_ptr(), memory);
    }
    memory = weight.grad().const_data_ptr();
  }
}

TEST(DeferredProducts, NothingIsDeferredOutsideOfAScope) {
  DeferredProducts::create();
  const at::Tensor weight = ramp({3, 4}).requires_grad_();
  at::linear(ramp({5, 4}), weight).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

}  // namespace deferred_products_test
}  // namespace accel::nn
