// SPDX-License-Identifier: Apache-2.0
// Training under mixed precision fp8: as under bf16 but for the rounding, on one rank and on several.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accel.h"
#include "accelerator/description.hpp"
#include "accelerator/forward_precision.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "base/error.hpp"
#include "capi/calls/handles.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/choices/fp8_scaling.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/fp8/fp8.hpp"
#include "config/generated/settings/module/activation_checkpointing.hpp"
#include "config/generated/settings/parallelism/tensor_parallel.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "expect_error.hpp"
#include "mesh_ranks.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/low_precision/fp8_layers.hpp"
#include "nn/module_walks.hpp"
#include "tensor/autograd/saved_tensor_hooks.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace fp8_training_test {

using checkpoint::tests::Folder;
using tests::AcceleratorPtr;
using tests::expect_error;
using tests::run_accelerators;

StateSettings with_precision(Precision precision) {
  StateSettings settings;
  settings.mixed_precision = precision;
  return settings;
}

Fp8Settings with_scaling(Fp8Scaling scaling) {
  Fp8Settings settings;
  settings.scaling = scaling;
  return settings;
}

std::shared_ptr<optim::Optimizer> adamw(const nn::ModulePtr& model, double lr) {
  accel_adam_options_t options = ACCEL_ADAM_OPTIONS_INIT;
  options.lr = lr;
  accel_optimizer_t* made = nullptr;
  const auto module = std::make_unique<accel_module>(model);
  EXPECT_EQ(accel_optimizer_adamw(module.get(), &options, &made), ACCEL_OK) << accel_last_error();
  auto optimizer = made->optimizer;
  accel_optimizer_release(made);
  return optimizer;
}

// Rows of small whole numbers that follow each other by a rule, which a model can learn.
at::Tensor tokens_of(int64_t rows, int64_t length, int64_t seed) {
  at::Tensor tokens = at::empty({rows, length}, at::kLong);
  for (int64_t row = 0; row < rows; row++) {
    int64_t token = (row * 7 + seed * 13) % 61;
    for (int64_t i = 0; i < length; i++) {
      tokens[row][i] = token;
      token = (token * 3 + row + i % 2) % 61;
    }
  }
  return tokens;
}

nn::ModulePtr small_gpt(double dropout = 0) {
  const std::string probability = std::to_string(dropout);
  nn::ModulePtr model = nn::module_from_config(
      R"({"model_type": "gpt2", "vocab_size": 64, "n_positions": 32, "n_embd": 64, "n_layer": 3, "n_head": 4,
          "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": )" +
      probability + "}");
  const at::NoGradGuard no_grad;
  const auto generator = at::detail::createCPUGenerator(3);
  for (const auto& [name, parameter] : nn::named_parameters(*model))
    if (parameter.dim() == 2) parameter.copy_(at::randn(parameter.sizes(), generator, at::kFloat) * 0.05);
  return model;
}

at::Tensor loss_of(const nn::ModulePtr& model, const at::Tensor& tokens) {
  const at::Tensor logits = model->call(nn::Inputs{tokens}).toTensor();
  return at::cross_entropy_loss(logits.slice(1, 0, -1).flatten(0, 1), tokens.slice(1, 1).flatten());
}

struct Trained {
  nn::ModulePtr model;
  std::shared_ptr<optim::Optimizer> optimizer;
  double loss = 0;  // the mean of the last steps
  std::vector<at::Tensor> parameters;
};

Trained train(const AcceleratorPtr& accelerator, int steps, const PrepareModelSettings& settings = {}) {
  const nn::ModulePtr inner = small_gpt();
  const auto plain = adamw(inner, 2e-3);
  const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, settings);
  const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
  const int rank = accelerator->state().groups().data_parallel()->rank();
  Trained run;
  run.model = model;
  run.optimizer = optimizer;
  for (int step = 0; step < steps; step++) {
    const MicroBatch micro_batch(accelerator, {model});
    const at::Tensor loss = loss_of(model, tokens_of(8, 24, step * 2 + rank));
    accelerator->backward().run(loss);
    optimizer->step();
    optimizer->zero_grad(/*set_to_none=*/true);
    if (step >= steps - 10) run.loss += loss.item<double>() / 10;
  }
  for (const at::Tensor& parameter : inner->parameters()) run.parameters.push_back(parameter.detach().clone());
  return run;
}

double loss_after(Precision precision, Fp8Scaling scaling, int steps) {
  double loss = 0;
  run_accelerators(1, with_precision(precision), [&](const AcceleratorPtr& accelerator) {
    accelerator->precision().set_fp8(with_scaling(scaling));
    loss = train(accelerator, steps).loss;
  });
  return loss;
}

TEST(Fp8Training, LearnsAsInBfloat16) {
  constexpr int kSteps = 30;
  const double expected = loss_after(Precision::kBf16, Fp8Scaling::kCurrent, kSteps);
  for (const Fp8Scaling scaling :
       {Fp8Scaling::kCurrent, Fp8Scaling::kDelayed, Fp8Scaling::kRowwise, Fp8Scaling::kBlockwise})
    EXPECT_NEAR(loss_after(Precision::kFp8, scaling, kSteps) / expected, 1, 0.03) << static_cast<int>(scaling);
}

at::Tensor saved_scales(const nn::ModulePtr& model, const std::string& layer) {
  const auto& fp8 = static_cast<const PreparedModel&>(*model).precision().fp8;
  const auto state = fp8->histories()->state_dict();
  return tree::find_member(*tree::find_member(*tree::find_member(state, "layers"), layer.c_str()), "scales")
      ->toTensor();
}

TEST(Fp8Training, RanksHaveEqualScalesAndParameters) {
  std::vector<Trained> runs(2);
  std::vector<at::Tensor> scales(2);
  run_accelerators(2, with_precision(Precision::kFp8), [&](const AcceleratorPtr& accelerator) {
    accelerator->precision().set_fp8(with_scaling(Fp8Scaling::kDelayed));
    const auto rank = static_cast<size_t>(accelerator->state().process_index());
    runs[rank] = train(accelerator, 3);
    scales[rank] = saved_scales(runs[rank].model, "transformer.h.1.mlp.c_fc");
  });
  ASSERT_EQ(runs[0].parameters.size(), runs[1].parameters.size());
  for (size_t i = 0; i < runs[0].parameters.size(); i++)
    EXPECT_TRUE(at::equal(runs[0].parameters[i], runs[1].parameters[i])) << i;
  EXPECT_TRUE(at::equal(scales[0], scales[1]));
  EXPECT_GT(scales[0].min().item<float>(), 0);
}

// Gradients of one micro-batch, after what `change` does to the model.
std::vector<at::Tensor> gradients_with(const AcceleratorPtr& accelerator, bool recomputes) {
  const nn::ModulePtr inner = small_gpt();
  if (recomputes)
    for (const char* const block : {"transformer.h.0", "transformer.h.1", "transformer.h.2"})
      inner->find(block)->set_activation_checkpointing(std::make_shared<const ActivationCheckpointingSettings>());
  const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
  accelerator->backward().run(loss_of(model, tokens_of(4, 24, 0)));
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : inner->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

TEST(Fp8Training, RecomputationGivesTheSameBits) {
  for (const Fp8Scaling scaling : {Fp8Scaling::kCurrent, Fp8Scaling::kRowwise}) {
    std::vector<at::Tensor> found[2];
    for (const bool recomputes : {false, true})
      run_accelerators(1, with_precision(Precision::kFp8), [&](const AcceleratorPtr& accelerator) {
        accelerator->precision().set_fp8(with_scaling(scaling));
        found[recomputes] = gradients_with(accelerator, recomputes);
      });
    for (size_t i = 0; i < found[0].size(); i++) EXPECT_TRUE(at::equal(found[0][i], found[1][i])) << i;
  }
}

// The bytes of the activations that a forward of the small model keeps for the backward, each memory once. Sizes of
// weights are no multiple of the number of tokens.
int64_t kept_bytes(Precision precision, bool compresses, double dropout = 0) {
  constexpr int64_t kRows = 7, kLength = 23;
  std::map<const c10::StorageImpl*, int64_t> kept;
  run_accelerators(1, with_precision(precision), [&](const AcceleratorPtr& accelerator) {
    Fp8Settings settings;
    settings.compress_activations = compresses;
    accelerator->precision().set_fp8(settings);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(small_gpt(dropout));
    const tensor::SavedTensorHooks counting([&](const at::Tensor& saved) {
      if (saved.is_floating_point() && saved.numel() > 0 && saved.numel() % (kRows * kLength) == 0)
        kept[saved.storage().unsafeGetStorageImpl()] = static_cast<int64_t>(saved.storage().nbytes());
      return nullptr;
    });
    const c10::IValue output = model->call(nn::Inputs{tokens_of(kRows, kLength, 0)});
  });
  int64_t bytes = 0;
  for (const auto& [_, size] : kept) bytes += size;
  return bytes;
}

TEST(Fp8Training, KeepsLessForTheBackward) {
  const auto plain = static_cast<double>(kept_bytes(Precision::kBf16, false));
  EXPECT_LE(static_cast<double>(kept_bytes(Precision::kFp8, true)) / plain, 0.6);
  EXPECT_GT(static_cast<double>(kept_bytes(Precision::kFp8, false)) / plain, 0.8);
  const auto with_dropout = static_cast<double>(kept_bytes(Precision::kBf16, false, 0.1));
  EXPECT_LE(static_cast<double>(kept_bytes(Precision::kFp8, true, 0.1)) / with_dropout, 0.6);
}

TEST(Fp8Training, IsDescribed) {
  run_accelerators(1, with_precision(Precision::kFp8), [](const AcceleratorPtr& accelerator) {
    Fp8Settings settings = with_scaling(Fp8Scaling::kRowwise);
    settings.use_in_evaluation = true;
    accelerator->precision().set_fp8(settings);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(small_gpt());
    const std::string text = describe(*accelerator);
    EXPECT_NE(text.find("11 of 13 linear layers in fp8 with scaling ROWWISE and format HYBRID, also in evaluation, "
                        "activations saved in 8 bits, outputs in float32"),
              std::string::npos)
        << text;
  });
}

TEST(Fp8Training, EvaluationIsInBfloat16UnlessAsked) {
  at::Tensor outputs[3];
  const at::Tensor tokens = tokens_of(2, 24, 0);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < 3; i++)
    run_accelerators(1, with_precision(i == 0 ? Precision::kBf16 : Precision::kFp8),
                     [&](const AcceleratorPtr& accelerator) {
                       Fp8Settings settings;
                       settings.use_in_evaluation = i == 2;
                       accelerator->precision().set_fp8(settings);
                       const nn::ModulePtr model = accelerator->preparation().prepare_model(small_gpt());
                       model->train(false);
                       outputs[i] = model->call(nn::Inputs{tokens}).toTensor();
                     });
  EXPECT_TRUE(at::equal(outputs[0], outputs[1]));
  EXPECT_FALSE(at::equal(outputs[0], outputs[2]));
}

TEST(Fp8Training, CheckpointsHaveTheHistories) {
  const Folder folder;
  at::Tensor scales;
  const auto resume = [&](const AcceleratorPtr& accelerator, Fp8Scaling scaling) {
    accelerator->precision().set_fp8(with_scaling(scaling));
    const nn::ModulePtr inner = small_gpt();
    const auto plain = adamw(inner, 2e-3);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    accelerator->checkpoints().load_state(folder / "state");
    return model;
  };
  run_accelerators(2, with_precision(Precision::kFp8), [&](const AcceleratorPtr& accelerator) {
    accelerator->precision().set_fp8(with_scaling(Fp8Scaling::kDelayed));
    const Trained run = train(accelerator, 2);
    accelerator->checkpoints().save_state(folder / "state");
    if (accelerator->state().is_main_process()) scales = saved_scales(run.model, "transformer.h.1.mlp.c_fc");
  });
  // With another number of ranks.
  run_accelerators(1, with_precision(Precision::kFp8), [&](const AcceleratorPtr& accelerator) {
    EXPECT_TRUE(at::equal(saved_scales(resume(accelerator, Fp8Scaling::kDelayed), "transformer.h.1.mlp.c_fc"), scales));
  });
  run_accelerators(1, with_precision(Precision::kFp8), [&](const AcceleratorPtr& accelerator) {
    expect_error(Status::kInvalidArgument,
                 "trained in fp8 with scaling DELAYED and format HYBRID, and this model has "
                 "CURRENT and HYBRID; expected accel_set_fp8()",
                 [&] { resume(accelerator, Fp8Scaling::kCurrent); });
  });
  run_accelerators(1, with_precision(Precision::kBf16),
                   [&](const AcceleratorPtr& accelerator) { resume(accelerator, Fp8Scaling::kCurrent); });
}

struct Mesh {
  tests::MeshSizes sizes;
  bool sequence_parallel = false;
};

// Shards, parts of layers, and parts of sequences.
TEST(Fp8Training, RanksWithPartsTrainAsOne) {
  constexpr int kSteps = 10;
  const double expected = loss_after(Precision::kBf16, Fp8Scaling::kCurrent, kSteps);
  for (const Fp8Scaling scaling : {Fp8Scaling::kCurrent, Fp8Scaling::kDelayed})
    for (const Mesh& mesh : {Mesh{{1, 2, 1}}, Mesh{{1, 1, 2}}, Mesh{{1, 1, 2}, true}}) {
      double loss = 0;
      tests::on_mesh(
          mesh.sizes,
          [&](const AcceleratorPtr& accelerator) {
            accelerator->precision().set_fp8(with_scaling(scaling));
            PrepareModelSettings settings;
            settings.fsdp.enabled = mesh.sizes.shards > 1;
            settings.tensor_parallel.sequence_parallel = mesh.sequence_parallel;
            const Trained run = train(accelerator, kSteps, settings);
            const auto& fp8 = static_cast<const PreparedModel&>(*run.model).precision().fp8;
            EXPECT_EQ(fp8->selection().layers.size(), 11u) << "three blocks of four, but the first layer";
            if (accelerator->state().is_main_process()) loss = run.loss;
          },
          [](StateSettings& settings, int) { settings.mixed_precision = Precision::kFp8; });
      EXPECT_NEAR(loss / expected, 1, 0.03) << mesh.sizes.shards << mesh.sizes.parts << mesh.sequence_parallel;
    }
}

TEST(Fp8Training, LearnsWithAccumulation) {
  StateSettings settings = with_precision(Precision::kFp8);
  settings.gradient_accumulation_steps = 2;
  run_accelerators(1, settings, [&](const AcceleratorPtr& accelerator) {
    accelerator->precision().set_fp8(with_scaling(Fp8Scaling::kDelayed));
    const Trained run = train(accelerator, 12);
    EXPECT_LT(run.loss, 4.2);
  });
}

}  // namespace fp8_training_test
}  // namespace accel::accelerator
