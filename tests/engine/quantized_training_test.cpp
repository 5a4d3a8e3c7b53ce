// SPDX-License-Identifier: Apache-2.0
// Adapters on quantized weights train on several ranks as in one process, and models with quantized weights are
// offloaded.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "accelerator_ranks.hpp"
#include "architecture_fixture.hpp"
#include "bigmodel/load_and_dispatch.hpp"
#include "expect_error.hpp"
#include "fsdp_fixture.hpp"
#include "nn/adapters/adapters.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/creation_device.hpp"
#include "nn/quantized/quantized_model.hpp"
#include "optim/rules/rules.hpp"
#include "report/temporary_folder.hpp"

namespace accel::nn {
namespace quantized_training_test {

using tests::AcceleratorPtr;

constexpr const char* kLlama =
    R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":17,"hidden_size":64,)"
    R"("intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,)"
    R"("max_position_embeddings":32,"tie_word_embeddings":false})";
constexpr int kSteps = 4;

void fill(const Module& model) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : named_parameters(model))
    if (tensor.is_floating_point()) tensor.copy_(tests::weight_of(name, tensor.sizes(), 3) * 0.3);
}

QuantizationOptions options_of(const char* kind) {
  QuantizationOptions options;
  options.kind = kind;
  options.has_double_quantization = std::string(kind) == "nf4";
  return options;
}

ModulePtr quantized_model(const char* kind) {
  ModulePtr model = module_from_config(kLlama);
  fill(*model);
  quantize_model(*model, options_of(kind));
  return model;
}

at::Tensor tokens_of(int64_t rows) { return (at::arange(rows * 5, at::kLong) * 7 + 3).remainder(17).view({rows, 5}); }

struct Trained {
  std::vector<double> losses;
};

Trained train(const char* kind, int ranks, const std::optional<FsdpSettings>& fsdp) {
  Trained trained;
  trained.losses.assign(kSteps, 0);
  std::mutex mutex;
  tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
    const ModulePtr inner = quantized_model(kind);
    LoraConfig config;
    config.targets.endings = {"all-linear"};
    config.shape.rank = 4;
    add_lora(*inner, "mine", config);
    {
      const at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : named_parameters(*inner))
        if (tensor.requires_grad()) tensor.copy_(tests::weight_of(name, tensor.sizes(), 5));
    }
    const auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.01}});
    std::vector<at::Tensor> trainable;
    for (const at::Tensor& parameter : inner->parameters())
      if (parameter.requires_grad()) trainable.push_back(parameter);
    plain->add_group(trainable, std::nullopt, std::nullopt);
    PrepareModelSettings preparation;
    if (fsdp) preparation.fsdp = *fsdp;
    const ModulePtr model = accelerator->preparation().prepare_model(inner, preparation);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    const int64_t share = 4 / ranks, first = accelerator->state().process_index() * share;
    for (int step = 0; step < kSteps; step++) {
      const at::Tensor loss =
          model->call(Inputs{tokens_of(4).slice(0, first, first + share)}).toTensor().square().mean();
      accelerator->backward().run(loss);
      optimizer->step();
      optimizer->zero_grad(true);
      const std::lock_guard<std::mutex> lock(mutex);
      trained.losses[static_cast<size_t>(step)] += loss.item<double>() / ranks;
    }
  });
  return trained;
}

TEST(QuantizedTraining, AdaptersTrainOnRanksAsInOneProcess) {
  for (const char* kind : {"nf4", "int8", "int4"}) {
    const Trained expected = train(kind, 1, std::nullopt);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    // Kernels round inputs by the number of rows that they get, which Adam's first steps enlarge.
    const auto expect_same = [&](const Trained& found) {
      for (int step = 0; step < kSteps; step++)
        EXPECT_NEAR(found.losses[static_cast<size_t>(step)], expected.losses[static_cast<size_t>(step)],
                    1e-3 * expected.losses[0])
            << step;
    };
    {
      SCOPED_TRACE(text(kind, ", replicas"));
      expect_same(train(kind, 2, std::nullopt));
    }
    for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
      SCOPED_TRACE(text(kind, ", strategy ", static_cast<int>(strategy)));
      FsdpSettings fsdp;
      fsdp.sharding_strategy = strategy;
      fsdp.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
      fsdp.transformer_cls_names_to_wrap = "LlamaDecoderLayer";
      expect_same(train(kind, 2, fsdp));
    }
  }
}

TEST(QuantizedTraining, QuantizedWeightsAreOffloaded) {
  const at::NoGradGuard no_grad;
  for (const char* kind : {"nf4", "llm_int8", "int4"}) {
    SCOPED_TRACE(kind);
    const ModulePtr source = quantized_model(kind);
    source->train(false);
    const at::Tensor tokens = tokens_of(2), before = source->call(tokens);
    const NamedTensors files = HubNames(*source).to_files(source->state_dict());
    for (const char* place : {"cpu", "disk"}) {
      const tests::TemporaryFolder folder;
      ModulePtr model;
      {
        const CreationDevice meta(c10::Device(c10::kMeta), false);
        model = module_from_config(kLlama);
      }
      prepare_quantized(*model, files, make_quantized_kind(options_of(kind)));
      model->train(false);
      bigmodel::load_checkpoint_and_dispatch(*model, files, nullptr, {});
      EXPECT_TRUE(at::equal(model->call(tokens), before));
      DispatchSettings settings;
      settings.offload_folder = folder.path();
      settings.force_hooks = true;
      const bigmodel::DeviceMap map = {{"", place}};
      bigmodel::dispatch_model(*model, map, {}, settings);
      for (int pass = 0; pass < 2; pass++) EXPECT_TRUE(at::equal(model->call(tokens), before)) << place;
    }
  }
}

}  // namespace quantized_training_test
}  // namespace accel::nn
