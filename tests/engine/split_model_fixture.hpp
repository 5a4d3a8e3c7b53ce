// SPDX-License-Identifier: Apache-2.0
// Models whose layers are split over ranks, which train on known data beside one process.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/generated/settings/prepare/prepare_model.hpp"
#include "mesh_ranks.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"

namespace accel::parallel::split_model_tests {

using tests::AcceleratorPtr;
using tests::MeshSizes;
using tests::on_mesh;

constexpr int64_t kVocabulary = 13, kRows = 4, kLength = 6;

struct Case {
  std::string name;
  std::function<nn::ModulePtr()> make;
  std::string plan;  // of the settings
  double tolerance = 1e-9;
  bool sequence_parallel = false;
  bool loss_parallel = false;
  bool returns_loss = false;  // the model computes its loss
};

// Llama's norms compute in float32, as transformers's do, and Adam turns a rounding into a step.
constexpr double kFloatTolerance = 1e-5;

// Ranks that are threads share one random stream, so that weights are not drawn.
inline nn::ModulePtr with_known_weights(const nn::ModulePtr& model) {
  model->to(at::kDouble, std::nullopt);
  const at::NoGradGuard no_grad;
  double seed = 1;
  for (const auto& [name, parameter] : nn::named_parameters(*model)) {
    seed += 0.37;
    const bool is_scale = name.find("norm") != std::string::npos && parameter.dim() == 1;
    parameter.copy_(
        at::linspace(-3 * seed, 11 * seed, parameter.numel(), at::kDouble).sin().mul(0.3).view(parameter.sizes()));
    if (is_scale) parameter.add_(1);
  }
  return model;
}

inline nn::ModulePtr from_config(const std::string& config) {
  return with_known_weights(nn::module_from_config(config));
}

inline nn::ModulePtr gpt2() {
  return from_config(
      R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 13, "n_positions": 8,
      "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})");
}

inline std::string llama_config(const std::string& more = "", int64_t key_heads = 3, int64_t heads = 6) {
  return R"({"model_type": "llama", "hidden_size": 24, "intermediate_size": 31, "num_hidden_layers": 2,
      "vocab_size": 13, "attention_bias": true, "mlp_bias": true, "num_attention_heads": )" +
         std::to_string(heads) + R"(, "num_key_value_heads": )" + std::to_string(key_heads) + more + "}";
}

inline nn::ModulePtr llama(const std::string& more = "", int64_t key_heads = 3, int64_t heads = 6) {
  return from_config(llama_config(more, key_heads, heads));
}

class Training {
 public:
  Training(const AcceleratorPtr& accelerator, const Case& test, const PrepareModelSettings& settings = {})
      : accelerator_(accelerator), returns_loss_(test.returns_loss) {
    inner_ = test.make();
    PrepareModelSettings preparation = settings;
    preparation.tensor_parallel.plan = test.plan;
    preparation.tensor_parallel.sequence_parallel = test.sequence_parallel;
    preparation.tensor_parallel.loss_parallel = test.loss_parallel;
    preparation.fsdp.enabled = accelerator->state().groups().mesh()->size("shard") > 1;
    auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.01}});
    plain->add_group(inner_->parameters(), std::nullopt, std::nullopt);
    model_ = accelerator->preparation().prepare_model(inner_, preparation);
    optimizer_ = accelerator->preparation().prepare_optimizer(plain);
  }

  at::Tensor backward(int64_t number) {
    const auto data = accelerator_->state().groups().data_parallel();
    const int64_t share = kRows / data->size();
    const at::Tensor rows =
        at::arange(kRows * kLength).mul(7 + number).add(number * number).remainder(kVocabulary).view({kRows, kLength});
    const at::Tensor tokens = rows.narrow(0, data->rank() * share, share).to(accelerator_->state().device());
    const at::Tensor output = model_->call(tokens);
    const at::Tensor loss =
        returns_loss_ ? output
                      : at::cross_entropy_loss(output.slice(1, 0, -1).flatten(0, 1), tokens.slice(1, 1).flatten());
    accelerator_->backward().run(loss);
    return loss.detach();
  }

  // Returns the loss of this rank and the norm of the gradients.
  std::pair<double, double> step(int64_t number) {
    const double loss = backward(number).item<double>();
    const double norm = accelerator_->clipping().clip_gradients_by_norm(model_, 0.5, 2)->item<double>();
    optimizer_->step();
    optimizer_->zero_grad(true);
    return {loss, norm};
  }

  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> weights;
    for (const auto& [name, tensor] : accelerator_->files().whole_state_dict(model_, /*keep=*/true))
      weights[name] = tensor.cpu().clone();
    return weights;
  }

  const nn::ModulePtr& inner() const { return inner_; }
  const nn::ModulePtr& model() const { return model_; }
  const std::shared_ptr<optim::Optimizer>& optimizer() const { return optimizer_; }

 private:
  AcceleratorPtr accelerator_;
  bool returns_loss_;
  nn::ModulePtr inner_, model_;
  std::shared_ptr<optim::Optimizer> optimizer_;
};

struct Trained {
  std::vector<std::pair<double, double>> steps;
  std::map<std::string, at::Tensor> weights, more;  // after the steps, and after one step more
};

inline Trained train_alone(const Case& test, int steps) {
  Trained trained;
  on_mesh({1, 1, 1}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    for (int step = 0; step < steps; step++) trained.steps.push_back(training.step(step));
    trained.weights = training.weights();
    training.step(steps);
    trained.more = training.weights();
  });
  return trained;
}

inline void expect_close(const std::map<std::string, at::Tensor>& found,
                         const std::map<std::string, at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(at::allclose(found.at(name), tensor, tolerance, tolerance))
        << name << " differs by " << (found.at(name) - tensor).abs().max().item<double>();
}

inline std::string text_of(const MeshSizes& sizes) {
  return std::to_string(sizes.replicas) + " x " + std::to_string(sizes.shards) + " x " + std::to_string(sizes.parts);
}

// Trains on the mesh as one process has trained, and ends with its weights.
inline void expect_trains_as(const Trained& expected, const Case& test, const MeshSizes& sizes) {
  SCOPED_TRACE(test.name + " on " + text_of(sizes));
  on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    for (size_t step = 0; step < expected.steps.size(); step++) {
      const auto [loss, norm] = training.step(static_cast<int64_t>(step));
      if (sizes.replicas * sizes.shards == 1) {
        EXPECT_NEAR(loss, expected.steps[step].first, test.tolerance);
      }
      EXPECT_NEAR(norm, expected.steps[step].second, test.tolerance);
    }
    expect_close(training.weights(), expected.weights, test.tolerance);
  });
}

}  // namespace accel::parallel::split_model_tests
