// SPDX-License-Identifier: Apache-2.0
// Adapters of models in stages train as in one process, on quantized layers, too, and are saved as a whole.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/formats/adapter_folder.hpp"
#include "expect_error.hpp"
#include "nn/adapters/adapters.hpp"
#include "nn/quantized/quantized_model.hpp"
#include "pipelined_model_fixture.hpp"
#include "report/temporary_folder.hpp"

namespace accel::parallel {
namespace pipelined_adapters_test {

using namespace pipelined_model_tests;
using tests::expect_error;
using tests::TemporaryFolder;

constexpr const char* kName = "mine";
constexpr double kFloatTolerance = 1e-5;

struct AdaptedCase {
  const char* name;
  bool is_dora = false, is_quantized = false;
  std::vector<int64_t> layers = {};  // empty: all
  std::string schedule = "1f1b";
};

nn::ModulePtr adapted_model(const AdaptedCase& test) {
  const nn::ModulePtr model = gpt2(true, at::kFloat);
  if (test.is_quantized) {
    nn::QuantizationOptions options;
    options.kind = "nf4";
    nn::quantize_model(*model, options);
  }
  nn::LoraConfig config;
  config.shape.rank = 2;
  config.shape.is_dora = test.is_dora;
  config.targets.endings = {"all-linear"};
  config.layers = test.layers;
  config.bias = test.is_dora ? "lora_only" : "none";
  nn::add_lora(*model, kName, config);
  const at::NoGradGuard no_grad;
  double seed = 0.5;
  for (const auto& [path, tensor] : nn::adapter_tensors(*model, kName)) {
    seed += 0.3;
    if (path.find("lora_A") != std::string::npos || path.find("lora_B") != std::string::npos)
      at::Tensor(tensor).copy_(at::linspace(-2 * seed, 7 * seed, tensor.numel()).sin().mul(0.2).view(tensor.sizes()));
  }
  return model;
}

OptimizerPtr optimizer_of(const nn::Module& model) {
  auto optimizer = optim::make_optimizer(optim::sgd_rule(), {{"lr", 0.1}});
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : model.parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  optimizer->add_group(trained, std::nullopt, std::nullopt);
  return optimizer;
}

struct Expected {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> adapter;
};

Expected train_alone(const AdaptedCase& test) {
  const nn::ModulePtr model = adapted_model(test);
  const OptimizerPtr optimizer = optimizer_of(*model);
  Expected expected;
  for (int64_t step = 0; step < kSteps; step++) {
    const at::Tensor rows = tokens(kRows, step);
    const at::Tensor loss = tensor::cross_entropy(model->call(inputs_of(rows)), labels_of(rows));
    loss.backward();
    expected.losses.push_back(loss.item<double>());
    optimizer->step();
    optimizer->zero_grad(true);
  }
  for (const auto& [path, tensor] : nn::adapter_tensors(*model, kName))
    expected.adapter[path] = tensor.detach().clone();
  return expected;
}

// Trains in stages, and calls `with` the prepared model.
template <typename With>
void train_in_stages(const AcceleratorPtr& accelerator, const AdaptedCase& test, const Expected& expected,
                     const With& with) {
  PrepareModelSettings settings;
  settings.pipeline.schedule = test.schedule;
  settings.pipeline.micro_batches = 4;
  settings.pipeline.split = std::string("parameters");
  const nn::ModulePtr inner = adapted_model(test);
  const auto plain = optimizer_of(*inner);
  const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, settings);
  const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
  auto& prepared = dynamic_cast<accelerator::PreparedModel&>(*model);
  for (int64_t step = 0; step < kSteps; step++) {
    const at::Tensor rows = tokens(kRows, step);
    PipelineBatch batch;
    if (accelerator->state().groups().mesh()->coordinate("pipeline") == 0)
      batch.inputs = tree::new_tuple({inputs_of(rows)});
    if (prepared.pipeline().has_last_stage()) batch.targets = labels_of(rows);
    const double loss = accelerator->backward().run_in_stages(prepared, batch, cross_entropy());
    EXPECT_NEAR(loss, expected.losses[static_cast<size_t>(step)], kFloatTolerance);
    optimizer->step();
    optimizer->zero_grad(true);
  }
  with(model);
  accelerator->free_memory();
}

TEST(PipelinedAdapters, TrainAsInOneProcessAndAreSavedAsAWhole) {
  for (const AdaptedCase& test :
       {AdaptedCase{"LoRA"}, AdaptedCase{"DoRA", true}, AdaptedCase{"zero_bubble", false, false, {}, "zero_bubble"},
        AdaptedCase{"quantized", false, true}}) {
    SCOPED_TRACE(test.name);
    const Expected expected = train_alone(test);
    const TemporaryFolder folder;
    on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
      train_in_stages(accelerator, test, expected, [&](const nn::ModulePtr& model) {
        accelerator->files().save_adapter(model, kName, folder.path() + "/adapter",
                                          accelerator->state().is_main_process());
      });
    });
    const nn::ModulePtr model = gpt2(true, at::kFloat);
    checkpoint::load_adapter(*model, kName, folder.path() + "/adapter");
    const nn::NamedTensors found = nn::adapter_tensors(*model, kName);
    EXPECT_EQ(found.size(), expected.adapter.size());
    for (const auto& [path, tensor] : found)
      EXPECT_TRUE(at::allclose(tensor, expected.adapter.at(path), kFloatTolerance, kFloatTolerance)) << path;
  }
}

// A stage without anything to train computes forwards, and gets gradients of nothing.
TEST(PipelinedAdapters, OfOneStageTrainAndAreRefusedToBeSaved) {
  for (const std::vector<int64_t>& layers : {std::vector<int64_t>{0}, std::vector<int64_t>{5}}) {
    SCOPED_TRACE(layers.front());
    const AdaptedCase test{"LoRA", false, false, layers};
    const Expected expected = train_alone(test);
    const TemporaryFolder folder;
    on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
      train_in_stages(accelerator, test, expected, [&](const nn::ModulePtr& model) {
        expect_error(Status::kNotFound, "have no layer of the adapter 'mine'", [&] {
          accelerator->files().save_adapter(model, kName, folder.path() + "/adapter",
                                            accelerator->state().is_main_process());
        });
      });
    });
  }
}

}  // namespace pipelined_adapters_test
}  // namespace accel::parallel
