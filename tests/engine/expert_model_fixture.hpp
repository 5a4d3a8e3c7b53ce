// SPDX-License-Identifier: Apache-2.0
// Models with experts for tests: mixtures of the library, and experts of a program.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "config/generated/choices/sharding_strategy.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/grouped_product.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/token_order.hpp"
#include "nn/split/expert_ranks.hpp"
#include "split_model_fixture.hpp"

namespace accel::parallel::split_model_tests {

constexpr int64_t kHidden = 8, kExperts = 4;

// Two mixtures, the second of which balances its experts.
inline nn::ModulePtr with_experts() {
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

// A forward of a program that sends tokens to the ranks of its experts by the operators.
inline nn::ModulePtr with_experts_of_a_program() {
  constexpr int64_t kFeatures = 6, kPerToken = 2;
  const auto experts = std::make_shared<nn::CallbackModule>("ProgramExperts");
  experts->add_parameter("up", at::empty({kExperts, kFeatures, kHidden}));
  experts->add_parameter("down", at::empty({kExperts, kHidden, kFeatures}));
  experts->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor tokens = inputs[0].toTensor(), weights = inputs[2].toTensor();
    const nn::TokenOrderPtr order = nn::TokenOrder::create(inputs[1].toTensor(), kExperts);
    const at::Tensor counts = at::tensor(order->counts(), at::kLong);
    const at::Tensor up = self.parameter(0), down = self.parameter(1);
    const auto [rows, received] = nn::dispatch_tokens(order->spread(tokens), counts, up);
    const at::Tensor sums = received.sum(0);
    const std::vector<int64_t> own(sums.const_data_ptr<int64_t>(), sums.const_data_ptr<int64_t>() + sums.numel());
    const at::Tensor results = nn::grouped_product(at::relu(nn::grouped_product(rows, up, own)), down, own);
    const at::Tensor places = order->to_places(nn::combine_tokens(results, counts, received, down));
    return at::bmm(weights.unsqueeze(1), places).squeeze(1);
  });
  const auto model = std::make_shared<nn::CallbackModule>("Program");
  model->add_child("words", std::make_shared<nn::Embedding>(kVocabulary, kHidden));
  model->add_child("router", std::make_shared<nn::Linear>(kHidden, kExperts, false));
  model->add_child("experts", experts);
  model->add_child("head", std::make_shared<nn::Linear>(kHidden, kVocabulary, true));
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const auto child = [&](size_t index) { return self.children()[index].second; };
    const at::Tensor x = child(0)->call(inputs[0].toTensor());
    const at::Tensor tokens = x.reshape({-1, kHidden});
    const auto [weights, chosen] = at::topk(at::softmax(child(1)->call(tokens), -1), kPerToken);
    return child(3)->call(x + child(2)->call(nn::Inputs{tokens, chosen, weights}).toTensor().view(x.sizes()));
  });
  return with_known_weights(model);
}

// Norms and weights are those of one process.
inline void expect_trains_alike(const Trained& expected, const MeshSizes& sizes, const Case& test,
                                const PrepareModelSettings& settings) {
  SCOPED_TRACE(test.name + " on " + text_of(sizes) + " x " + std::to_string(sizes.contexts) + ", experts " +
               std::to_string(sizes.experts));
  on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test, settings);
    for (size_t step = 0; step < expected.steps.size(); step++) {
      const double norm = training.step(static_cast<int64_t>(step)).second;
      EXPECT_NEAR(norm, expected.steps[step].second, 1e-9);
    }
    expect_close(training.weights(), expected.weights, 1e-9);
  });
}

inline PrepareModelSettings replicated() {
  PrepareModelSettings settings;
  settings.fsdp.sharding_strategy = ShardingStrategy::kNoShard;
  return settings;
}

}  // namespace accel::parallel::split_model_tests
