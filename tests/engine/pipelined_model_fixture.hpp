// SPDX-License-Identifier: Apache-2.0
// Models in stages, and the same training in one process.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/pipeline/pipeline.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "mesh_ranks.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/module_walks.hpp"
#include "optim/clip.hpp"
#include "optim/rules/rules.hpp"
#include "parallel/stage_pipeline.hpp"
#include "tensor/autograd/loss.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace pipelined_model_tests {

using tests::AcceleratorPtr;
using tests::MeshSizes;
using tests::on_mesh;

constexpr int64_t kVocabulary = 13, kRows = 8, kLength = 6;
constexpr int kSteps = 2;
constexpr double kTolerance = 1e-9, kLargestNorm = 0.5;

// Ranks that are threads share one random stream, so that weights are not drawn.
inline nn::ModulePtr with_known_weights(const nn::ModulePtr& model) {
  model->to(at::kDouble, std::nullopt);
  const at::NoGradGuard no_grad;
  double seed = 1;
  for (const auto& [name, parameter] : nn::named_parameters(*model)) {
    seed += 0.37;
    parameter.copy_(
        at::linspace(-3 * seed, 11 * seed, parameter.numel(), at::kDouble).sin().mul(0.3).view(parameter.sizes()));
  }
  return model;
}

inline nn::ModulePtr gpt2(bool is_tied, at::ScalarType dtype = at::kDouble) {
  const nn::ModulePtr model = with_known_weights(nn::module_from_config(
      std::string(R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 6, "n_head": 2, "vocab_size": 13,
      "n_positions": 6, "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0, "tie_word_embeddings": )") +
      (is_tied ? "true}" : "false}")));
  model->to(dtype, std::nullopt);
  return model;
}

using OptimizerPtr = std::shared_ptr<optim::Optimizer>;

inline OptimizerPtr adamw(const nn::Module& model) {
  auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.01}});
  optimizer->add_group(model.parameters(), std::nullopt, std::nullopt);
  return optimizer;
}

inline OptimizerPtr sgd(const nn::Module& model) {
  auto optimizer = optim::make_optimizer(optim::sgd_rule(), {{"lr", 0.1}});
  optimizer->add_group(model.parameters(), std::nullopt, std::nullopt);
  return optimizer;
}

struct Case {
  std::string schedule = "1f1b";
  int64_t micro_batches = 4;
  bool is_tied = true;
  int64_t accumulation = 1;
  bool is_sharded = false;
  int64_t rows = kRows;
  StateDictType form = StateDictType::kFullStateDict;  // of checkpoints of sharded models
  at::ScalarType dtype = at::kDouble;
  OptimizerPtr (*optimizer)(const nn::Module& model) = adamw;
};

inline std::string name_of(const Case& test) {
  return test.schedule + ", micro-batches " + std::to_string(test.micro_batches) + (test.is_tied ? ", tied" : "") +
         (test.accumulation > 1 ? ", accumulated" : "") + (test.is_sharded ? ", sharded" : "");
}

inline at::Tensor tokens(int64_t rows, int64_t seed) {
  return (at::arange(rows * (kLength + 1), at::kLong).mul(7).add(13 * seed).square() % kVocabulary)
      .view({rows, kLength + 1});
}
inline at::Tensor inputs_of(const at::Tensor& rows) { return rows.narrow(1, 0, kLength).contiguous(); }
inline at::Tensor labels_of(const at::Tensor& rows) { return rows.narrow(1, 1, kLength).contiguous(); }

// The rows of a data rank in a micro-batch of the accumulation window.
inline at::Tensor rows_of(const Case& test, int64_t step, int64_t accumulated, int64_t data_rank) {
  return tokens(test.rows, 100 * step + 10 * accumulated + data_rank);
}

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> weights;  // under each of their names
};

// All rows in one process, without an accelerator.
inline Trained train_alone(const Case& test, int64_t data_ranks, int64_t steps = kSteps,
                           at::ScalarType dtype = at::kDouble) {
  const nn::ModulePtr model = gpt2(test.is_tied, dtype);
  const OptimizerPtr optimizer = test.optimizer(*model);
  Trained trained;
  for (int64_t step = 0; step < steps; step++) {
    std::vector<at::Tensor> rows;
    for (int64_t accumulated = 0; accumulated < test.accumulation; accumulated++)
      for (int64_t rank = 0; rank < data_ranks; rank++) rows.push_back(rows_of(test, step, accumulated, rank));
    const at::Tensor all = at::cat(rows);
    const at::Tensor loss = tensor::cross_entropy(model->call(inputs_of(all)), labels_of(all));
    loss.backward();
    trained.losses.push_back(loss.item<double>());
    trained.norms.push_back(optim::clip_gradients_by_norm(model->parameters(), kLargestNorm, 2).item<double>());
    optimizer->step();
    optimizer->zero_grad(true);
  }
  for (const auto& [name, parameter] : nn::named_members(*model)) trained.weights[name] = parameter.detach().clone();
  return trained;
}

inline PipelineLoss cross_entropy() {
  PipelineLoss loss;
  loss.of_output = [](const c10::IValue& output, const c10::IValue& targets) {
    return tensor::cross_entropy(output.toTensor(), targets.toTensor());
  };
  return loss;
}

inline PrepareModelSettings settings_of(const Case& test) {
  PrepareModelSettings settings;
  settings.pipeline.schedule = test.schedule;
  settings.pipeline.micro_batches = test.micro_batches;
  settings.pipeline.split = std::string("parameters");
  settings.fsdp.enabled = test.is_sharded;
  settings.fsdp.state_dict_type = test.form;
  return settings;
}

class Training {
 public:
  Training(const AcceleratorPtr& accelerator, const Case& test) : Training(accelerator, test, settings_of(test)) {}
  Training(const AcceleratorPtr& accelerator, const Case& test, const PrepareModelSettings& settings)
      : accelerator_(accelerator), test_(test), inner_(gpt2(test.is_tied, test.dtype)) {
    auto accumulation = accelerator->state().gradient_state()->settings();
    accumulation.num_steps = test.accumulation;
    accelerator->state().gradient_state()->set_settings(accumulation);
    model_ = accelerator->preparation().prepare_model(inner_, settings);
    optimizer_ = accelerator->preparation().prepare_optimizer(test.optimizer(*model_));
  }
  ~Training() {
    model_ = nullptr;
    optimizer_ = nullptr;
    accelerator_->free_memory();
  }

  accelerator::PreparedModel& prepared() const { return dynamic_cast<accelerator::PreparedModel&>(*model_); }
  const nn::ModulePtr& model() const { return model_; }
  const nn::Module& inner() const { return *inner_; }

  // Ranks without the first or the last stage have no inputs, or no targets.
  double backward(const at::Tensor& rows, const PipelineLoss& loss = cross_entropy()) {
    comm::Mesh& mesh = *accelerator_->state().groups().mesh();
    PipelineBatch batch;
    if (mesh.coordinate("pipeline") == 0) batch.inputs = tree::new_tuple({inputs_of(rows)});
    if (prepared().pipeline().has_last_stage()) batch.targets = labels_of(rows);
    return accelerator_->backward().run_in_stages(prepared(), batch, loss);
  }

  // The loss of this rank's rows, and the norm of all gradients.
  std::pair<double, double> step(int64_t number) {
    double loss = 0, norm = 0;
    const int64_t rank = accelerator_->state().groups().data_parallel()->rank();
    for (int64_t i = 0; i < test_.accumulation; i++) {
      const accelerator::MicroBatch micro_batch(accelerator_, {model_});
      loss += backward(rows_of(test_, number, i, rank)) / static_cast<double>(test_.accumulation);
      if (const auto clipped = accelerator_->clipping().clip_gradients_by_norm(model_, kLargestNorm, 2))
        norm = clipped->item<double>();
      optimizer_->step();
      optimizer_->zero_grad(true);
    }
    return {loss, norm};
  }
  const OptimizerPtr& optimizer() const { return optimizer_; }
  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> weights;
    for (const auto& [name, tensor] : accelerator_->files().whole_state_dict(model_, /*keep=*/true))
      weights[name] = tensor.clone();
    return weights;
  }
  void zero_grad() { optimizer_->zero_grad(true); }

 private:
  const AcceleratorPtr accelerator_;
  const Case test_;
  const nn::ModulePtr inner_;
  nn::ModulePtr model_;
  OptimizerPtr optimizer_;
};

// Compares what this rank stores.
inline void expect_weights(const nn::Module& model, const std::map<std::string, at::Tensor>& expected,
                           double tolerance = kTolerance) {
  const nn::Placements placements = nn::placements(model);
  for (const auto& [name, parameter] : nn::named_parameters(model)) {
    const at::Tensor& whole = expected.at(name);
    const tensor::PlacementPtr placement = placements.find(parameter);
    ASSERT_NE(placement, nullptr) << name;
    EXPECT_EQ(placement->shape, whole.sizes().vec()) << name;
    for (const tensor::PlacedBox& box : placement->boxes)
      EXPECT_TRUE(at::allclose(tensor::narrow(parameter.detach(), {box.local, box.whole.sizes}),
                               tensor::narrow(whole, box.whole), tolerance, tolerance))
          << name;
  }
}

// A block of the model that is in a stage of this rank.
inline nn::ModulePtr own_block(nn::Module& model) {
  for (const auto& [path, module] : nn::named_modules(model))
    if (module->kind() == "GPT2Block") return model.find(path);
  return nullptr;
}

inline MeshSizes stages(int64_t number) { return {1, 1, 1, 1, 1, number}; }

}  // namespace pipelined_model_tests
}  // namespace accel::parallel
