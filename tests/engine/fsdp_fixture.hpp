// SPDX-License-Identifier: Apache-2.0
// What tests of sharded models share: a model, its data, and the ranks that share its copies.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tanh.h>

#include <map>
#include <memory>
#include <string>

#include "comm/group.hpp"
#include "config/generated/choices/auto_wrap_policy.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "nn/placements.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/placed_parameters.hpp"

namespace accel::parallel {
namespace fsdp_fixture {

// The number of rows is not a multiple of any number of ranks.
inline nn::ModulePtr block(int64_t number) {
  auto module = std::make_shared<nn::CallbackModule>("Block");
  module->add_parameter("weight", at::linspace(-0.4, 0.5, 49).view({7, 7}).roll(number), true);
  module->add_parameter("bias", at::linspace(0.1, -0.1, 7).roll(number), true);
  module->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor& x = inputs[0].toTensor();
    return x + at::tanh(at::linear(x, self.parameter(0), self.parameter(1)));
  });
  return module;
}

struct Shape {
  bool frozen_inside = false;  // a weight in each block
  bool frozen_block = false;   // the second block as a whole
  bool tied = false;           // the third block has the first one's weight
  bool shared = false;         // the first block is called twice
};

// Three blocks between two layers of the root.
inline std::shared_ptr<nn::CallbackModule> make_model(const Shape& shape = {}) {
  auto model = std::make_shared<nn::CallbackModule>("Net");
  model->add_parameter("first", at::linspace(-0.6, 0.6, 35).view({7, 5}), true);
  model->add_parameter("last", at::linspace(0.5, -0.4, 14).view({2, 7}), true);
  for (int64_t i = 0; i < 3; i++) {
    const nn::ModulePtr child = block(i);
    if (shape.frozen_inside || (shape.frozen_block && i == 1)) child->parameter(0).set_requires_grad(false);
    if (shape.frozen_block && i == 1) child->parameter(1).set_requires_grad(false);
    model->add_child("block" + std::to_string(i), child);
  }
  if (shape.tied) nn::tie(*model, "block2.weight", "block0.weight");
  model->set_forward([shape](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = at::linear(inputs[0].toTensor(), self.parameter(0));
    for (const auto& [name, child] : self.children()) x = child->call(x);
    if (shape.shared) x = self.children()[0].second->call(x);
    return at::linear(x, self.parameter(1));
  });
  return model;
}

// Other rows for each step.
inline at::Tensor rows_of_step(int step) { return at::linspace(-2, 2, 60).mul(1.7 + step).sin().view({12, 5}); }

inline FsdpSettings by_blocks() {
  FsdpSettings settings;
  settings.enabled = true;
  settings.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  settings.transformer_cls_names_to_wrap = std::string("Block");
  return settings;
}

inline std::map<std::string, at::Tensor> whole_parameters(const ParallelModel& model) {
  std::map<std::string, at::Tensor> found;
  const nn::Placements placements = nn::placements(*model.module());
  const auto* const sharded = dynamic_cast<const FullyShardedDataParallel*>(&model);
  for (const auto& [name, parameter] : nn::named_parameters(*model.module())) {
    const tensor::PlacementPtr placement = placements.find(parameter);
    found[name] = placement == nullptr ? parameter.detach().clone()
                                       : gather_parts(parameter.detach(), *placement, *sharded->ranks().shard).clone();
  }
  return found;
}

// Two ranks share a copy of a hybrid strategy, or all if their number is odd.
inline ModelRanks model_ranks(const std::shared_ptr<comm::Communicator>& all, ShardingStrategy strategy) {
  const bool is_hybrid = strategy == ShardingStrategy::kHybridShard || strategy == ShardingStrategy::kHybridShardZero2;
  if (!is_hybrid || all->size() % 2 == 1) return {all, all, nullptr, "shard"};
  const int rank = all->rank();
  return {all, comm::split_group(*all, rank / 2, rank), comm::split_group(*all, rank % 2, rank), "shard"};
}

}  // namespace fsdp_fixture
}  // namespace accel::parallel
