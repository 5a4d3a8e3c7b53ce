// SPDX-License-Identifier: Apache-2.0
// Sharded training on a device, with and without parts in the memory of the host or in files. Equals the same on the
// CPU.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "nn/callback_module.hpp"
#include "optim/rules/rules.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/parameter_parts.hpp"
#include "staged_ranks.hpp"

namespace accel::parallel {
namespace staged_sharding_test {

using tests::Tensors;

constexpr int64_t kWidth = 23;

nn::ModulePtr make_layer(int64_t seed, c10::Device place) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  auto layer = std::make_shared<nn::CallbackModule>("Layer");
  layer->add_parameter("weight", (at::randn({kWidth, kWidth}, generator, at::kFloat) * 0.2).to(place), true);
  layer->add_parameter("bias", at::randn({kWidth}, generator, at::kFloat).to(place), true);
  layer->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    return at::tanh(at::addmm(self.parameter(1), inputs[0].toTensor(), self.parameter(0)));
  });
  return layer;
}

nn::ModulePtr make_model(c10::Device place) {
  auto model = std::make_shared<nn::CallbackModule>("Model");
  for (int64_t i = 0; i < 4; i++) model->add_child("layer" + std::to_string(i), make_layer(i, place));
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& [name, layer] : self.children()) x = x + layer->call(x);
    return x;
  });
  return model;
}

FsdpSettings by_layers() {
  FsdpSettings settings;
  settings.enabled = true;
  settings.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  settings.transformer_cls_names_to_wrap = std::string("Layer");
  return settings;
}

// The rules' kernels of the CPU round in another order than the operators of a device.
void step_by_operators(const nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : model.parameters()) parameter.add_(parameter.grad(), -0.1);
}

using Granularity = std::optional<kernels::Fp8Granularity>;  // none: nothing is gathered in 8 bits

Fp8GatherPtr gather_of(Granularity granularity) {
  if (!granularity) return nullptr;
  auto gather = std::make_shared<Fp8Gather>();
  gather->granularity = *granularity;
  gather->covers = [](const at::Tensor& weight) { return weight.dim() == 2; };
  return gather;
}

Tensors train(const CommunicatorPtr& communicator, c10::Device place, const FsdpSettings& settings,
              Granularity granularity = std::nullopt) {
  const int rank = communicator->rank();
  const auto inner = make_model(place);
  const bool is_offloaded = settings.cpu_offload || settings.offload_optimizer;
  const auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.02}});
  optimizer->add_group(inner->parameters(), std::nullopt, std::nullopt);
  const auto model = FullyShardedDataParallel::create(inner, {communicator, communicator, nullptr, "shard"}, settings,
                                                      place, gather_of(granularity));
  if (const auto memory = model->parts()->state_memory()) optimizer->group(0).state_memory = memory;
  Tensors results;
  for (int step = 0; step < 4; step++) {
    const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(100 * step + rank));
    const at::Tensor batch = at::randn({6, kWidth}, generator, at::kFloat).to(place);
    const at::Tensor loss = model->call(nn::Inputs{batch}).toTensor().square().mean();
    torch::autograd::backward({loss}, {});
    results.push_back(loss.detach());
    model->finish_step();
    if (is_offloaded)
      optimizer->step();
    else
      step_by_operators(*inner);
    optimizer->zero_grad(/*set_to_none=*/true);
  }
  for (const at::Tensor& parameter : inner->parameters()) {
    EXPECT_EQ(parameter.device(), is_offloaded ? c10::Device(at::kCPU) : place);
    results.push_back(parameter);
  }
  return results;
}

class StagedSharding : public tests::StagedRanks {
 protected:
  static void expect_equal_with(const FsdpSettings& settings, c10::ScalarType computed_in = at::kFloat,
                                Granularity granularity = std::nullopt) {
    for (const int size : {2, 3})
      expect_equal(
          size,
          [&settings, granularity](const CommunicatorPtr& communicator, c10::Device place) {
            return train(communicator, place, settings, granularity);
          },
          with_every_work(), computed_in);
  }
};

TEST_F(StagedSharding, EqualsTheCpus) {
  for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp})
    for (const bool forward_prefetch : {false, true}) {
      FsdpSettings settings = by_layers();
      settings.sharding_strategy = strategy;
      settings.forward_prefetch = forward_prefetch;
      expect_equal_with(settings);
    }
}

TEST_F(StagedSharding, InBfloat16EqualsTheCpus) {
  FsdpSettings settings = by_layers();
  settings.param_dtype = std::string("bfloat16");
  settings.reduce_dtype = std::string("float32");
  expect_equal_with(settings, at::kBFloat16);
}

TEST_F(StagedSharding, InEightBitsEqualsTheCpus) {
  using kernels::Fp8Granularity;
  for (const auto granularity : {Fp8Granularity::kTensor, Fp8Granularity::kRow, Fp8Granularity::kBlock})
    for (const bool on_host : {false, true}) {
      FsdpSettings settings = by_layers();
      settings.param_dtype = std::string("bfloat16");
      settings.reduce_dtype = std::string("float32");
      settings.cpu_offload = on_host;
      expect_equal_with(settings, at::kBFloat16, granularity);
    }
}

TEST_F(StagedSharding, WithPartsOnTheHostEqualsTheCpus) {
  for (const bool parameters : {false, true})
    for (const bool in_files : {false, true}) {
      FsdpSettings settings = by_layers();
      settings.cpu_offload = parameters;
      settings.offload_optimizer = !parameters || in_files;
      if (in_files) settings.offload_folder = std::filesystem::temp_directory_path().string();
      expect_equal_with(settings);
    }
}

TEST_F(StagedSharding, WithActivationsComputedAgainEqualsTheCpus) {
  FsdpSettings settings = by_layers();
  settings.fsdp_version = 2;
  settings.activation_checkpointing = true;
  settings.activation_checkpointing_offload = true;
  expect_equal_with(settings);
}

}  // namespace staged_sharding_test
}  // namespace accel::parallel
