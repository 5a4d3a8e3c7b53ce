// SPDX-License-Identifier: Apache-2.0
// The kept half-precision casts of weights: the same training as with fresh ones, whoever writes the weights.
#include "precision/autocast_weight_cache.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/dlpack.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/autocast.hpp"
#include "optim/rules/rules.hpp"
#include "precision/autocast.hpp"
#include "tensor/access.hpp"
#include "tensor/device/memory.hpp"
#include "tensor/dlpack.hpp"
#include "tensor/external_alias.hpp"

namespace accel::precision {
namespace autocast_weight_cache_test {

// Two layers, one of them with its weight transposed in memory, as some models have it.
struct Model {
  at::Tensor first = at::linspace(-1, 1, 64 * 48).reshape({48, 64}).clone().requires_grad_();
  at::Tensor bias = at::linspace(1, 2, 48).clone().requires_grad_();
  at::Tensor second = at::linspace(-2, 1, 48 * 16).reshape({48, 16}).clone().t().detach().requires_grad_();

  std::vector<at::Tensor> weights() const { return {first, bias, second}; }

  at::Tensor forward(AutocastWeightCache* casts, Precision precision = Precision::kBf16) const {
    const AutocastWeightCache::Scope scope(casts);
    const AutocastGuard autocast(precision, c10::DeviceType::CPU);
    return at::linear(at::linear(at::linspace(-1, 1, 8 * 64).reshape({8, 64}), first, bias).relu(), second);
  }
};

at::Tensor loss_of(const at::Tensor& output) { return output.to(at::kFloat).square().mean(); }

bool same(const Model& a, const Model& b) {
  return a.first.equal(b.first) && a.bias.equal(b.bias) && a.second.equal(b.second);
}

// What a forward sees must be what fresh casts give.
void expect_current(const Model& model, AutocastWeightCache& casts) {
  EXPECT_TRUE(model.forward(&casts).equal(model.forward(nullptr)));
}

struct NamedRule {
  std::string name;
  optim::RulePtr (*make)();
  bool writes_casts;
};

optim::RulePtr adamw_rule() { return optim::adam_rule(optim::WeightDecay::kDecoupled); }

const NamedRule kRules[] = {
    {"sgd", optim::sgd_rule, true},
    {"adamw", adamw_rule, true},
    {"adamw_8bit", optim::adamw_8bit_rule, true},
    {"adagrad", optim::adagrad_rule, true},
    {"lamb", optim::lamb_rule, true},
    {"lion", optim::lion_rule, true},
    {"adafactor", optim::adafactor_rule, false},
};

std::shared_ptr<optim::ParameterOptimizer> optimizer_of(const NamedRule& rule, const Model& model) {
  auto optimizer = optim::make_optimizer(rule.make(), {{"lr", 1e-4}});
  optimizer->add_group(model.weights(), std::nullopt, std::nullopt);
  return optimizer;
}

TEST(AutocastWeightCache, OptimizersWriteThemWithTheWeights) {
  for (const NamedRule& rule : kRules) {
    for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
      AutocastWeightCache casts(c10::DeviceType::CPU);
      const Model kept, fresh;
      const auto with = optimizer_of(rule, kept), without = optimizer_of(rule, fresh);
      for (int step = 0; step < 5; ++step) {
        casts.start_accumulation_window();
        const at::Tensor output = kept.forward(&casts, precision), expected = fresh.forward(nullptr, precision);
        EXPECT_TRUE(output.equal(expected)) << rule.name << " " << step;
        loss_of(output).backward();
        loss_of(expected).backward();
        EXPECT_EQ(casts.size(), 3U);
        with->step();
        without->step();
        with->zero_grad(/*set_to_none=*/true);
        without->zero_grad(/*set_to_none=*/true);
        EXPECT_EQ(casts.size(), rule.writes_casts ? 3U : 0U) << rule.name;
        EXPECT_TRUE(same(kept, fresh)) << rule.name << " " << step;
      }
    }
  }
}

TEST(AutocastWeightCache, AreThoseOfTheWeightsWhoeverWritesThem) {
  const at::NoGradGuard no_grad;
  AutocastWeightCache casts(c10::DeviceType::CPU);
  Model model;
  expect_current(model, casts);
  model.first.mul_(0.5);
  expect_current(model, casts);
  model.second[3].fill_(7);  // through a view
  expect_current(model, casts);
  model.bias.detach().zero_();
  expect_current(model, casts);
  tensor::copy_elements(model.bias, at::ones({48}));
  expect_current(model, casts);
  model.first.set_data(at::full({48, 64}, 0.25));
  expect_current(model, casts);
  EXPECT_EQ(casts.size(), 3U);
}

TEST(AutocastWeightCache, OfMemoryThatTheHostKnowsLastAGroup) {
  AutocastWeightCache casts(c10::DeviceType::CPU);
  Model model;
  auto* const address = static_cast<float*>(tensor::data_pointer(model.first.detach()[0]));  // before the first forward
  expect_current(model, casts);
  auto* const later = static_cast<float*>(tensor::data_pointer(model.bias));
  DLManagedTensorVersioned* const lent = tensor::to_dlpack_versioned(model.second.detach());
  *address = 100;
  *later = 200;
  *static_cast<float*>(lent->dl_tensor.data) = 300;
  casts.start_accumulation_window();
  EXPECT_EQ(casts.size(), 0U);
  expect_current(model, casts);
  lent->deleter(lent);

  std::vector<float> own(48, 1);
  model.bias = tensor::from_blob(own.data(), {48}, nullptr, at::kFloat, c10::DeviceType::CPU, nullptr).requires_grad_();
  expect_current(model, casts);
  own[0] = 50;
  casts.start_accumulation_window();
  expect_current(model, casts);
}

TEST(AutocastWeightCache, OfAGraphThatIsStillThereAreLeftToIt) {
  AutocastWeightCache casts(c10::DeviceType::CPU);
  const Model kept, fresh;
  const auto with = optimizer_of(kRules[1], kept), without = optimizer_of(kRules[1], fresh);
  const auto train = [](const Model& model, AutocastWeightCache* used, optim::Optimizer& optimizer) {
    const at::Tensor early = loss_of(model.forward(used));
    loss_of(model.forward(used)).backward();
    optimizer.step();
    early.backward();  // of the weights as they were
    optimizer.step();
  };
  train(kept, &casts, *with);
  train(fresh, nullptr, *without);
  EXPECT_TRUE(same(kept, fresh));
  expect_current(kept, casts);
}

TEST(AutocastWeightCache, AProgramsOwnCastIsItsOwn) {
  AutocastWeightCache casts(c10::DeviceType::CPU);
  const Model model;
  const AutocastWeightCache::Scope scope(&casts);
  const AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
  at::Tensor output = model.forward(&casts);
  {
    const at::NoGradGuard no_grad;
    model.first.to(at::kBFloat16).zero_();
    const AutocastGuard disabled(Precision::kBf16, c10::DeviceType::CPU, {/*enabled=*/false, /*cache_enabled=*/true});
    model.first.to(at::kBFloat16).zero_();
  }
  EXPECT_TRUE(model.forward(&casts).equal(output));
  EXPECT_GT(output.abs().max().item<double>(), 0);
}

TEST(AutocastWeightCache, GoWithTheirWeightAndTheirModel) {
  AutocastWeightCache casts(c10::DeviceType::CPU);
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weight = [&] {
    const Model model;
    model.forward(&casts);
    return c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(model.first.getIntrusivePtr());
  }();
  EXPECT_TRUE(weight.expired());
  EXPECT_EQ(casts.size(), 0U);
  const Model model;
  const auto optimizer = optimizer_of(kRules[0], model);
  auto gone = std::make_unique<AutocastWeightCache>(c10::DeviceType::CPU);
  loss_of(model.forward(gone.get())).backward();
  CastUpdate update(model.first);
  EXPECT_TRUE(update.values().defined());
  gone.reset();
  update.keep(model.first);
  optimizer->step();
  expect_current(model, casts);
}

TEST(AutocastWeightCache, AreThereForEvaluationToo) {
  AutocastWeightCache casts(c10::DeviceType::CPU);
  const Model model;
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(model.forward(&casts).equal(model.forward(nullptr)));
  }
  EXPECT_EQ(casts.size(), 3U);
  loss_of(model.forward(&casts)).backward();  // the cast made without gradients leads to the weight all the same
  EXPECT_TRUE(model.first.grad().defined());
}

TEST(AutocastWeightCache, OfAnInferenceServeTrainingToo) {
  AutocastWeightCache casts(c10::DeviceType::CPU);
  const Model model;
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(model.forward(&casts).equal(model.forward(nullptr)));
  }
  EXPECT_EQ(casts.size(), 3U);
  loss_of(model.forward(&casts)).backward();
  EXPECT_TRUE(model.first.grad().defined());
}

TEST(AutocastWeightCache, ForwardsOnSeveralThreadsShareThem) {
  AutocastWeightCache casts(c10::DeviceType::CPU);
  const Model model;
  const at::Tensor expected = model.forward(nullptr);
  std::vector<std::thread> threads;
  std::vector<at::Tensor> outputs(4);
  for (at::Tensor& output : outputs) threads.emplace_back([&] { output = model.forward(&casts); });
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& output : outputs) EXPECT_TRUE(output.equal(expected));
}

}  // namespace autocast_weight_cache_test
}  // namespace accel::precision
