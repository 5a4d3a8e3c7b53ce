// SPDX-License-Identifier: Apache-2.0
// Whole training runs of two small models from stored weights and data.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "accelerator/prepared_object.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/precision_name.hpp"
#include "fixture.hpp"
#include "nn/module_walks.hpp"
#include "optim/clip.hpp"
#include "optim/schedules/lr_scheduler.hpp"
#include "training_objects.hpp"

namespace accel::parity {
namespace training_test {

using Tensors = std::map<std::string, at::Tensor>;

Tensors read_start() {
  Tensors tensors;
  for (const auto& [name, tensor] :
       checkpoint::load_safetensors(fixture_folder() + "/training_init.safetensors").tensors)
    tensors[name] = tensor.clone();
  return tensors;
}

// Names of parameters have no dots.
std::string flat(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

at::Tensor linear(nn::Module& module, const std::string& name, const at::Tensor& input) {
  return at::linear(input, nn::find_tensor(module, name + "_weight"), nn::find_tensor(module, name + "_bias"));
}

at::Tensor layer_norm(nn::Module& module, const std::string& name, const at::Tensor& input) {
  return at::layer_norm(input, {input.size(-1)}, nn::find_tensor(module, name + "_weight"),
                        nn::find_tensor(module, name + "_bias"));
}

c10::IValue mlp(nn::Module& module, const nn::Inputs& inputs) {
  const at::Tensor hidden = at::tanh(linear(module, "0", inputs[0].toTensor()));
  return linear(module, "4", at::relu(linear(module, "2", hidden)));
}

c10::IValue block(nn::Module& module, const nn::Inputs& inputs) {
  constexpr int64_t kHeads = 2;
  at::Tensor hidden = at::embedding(nn::find_tensor(module, "embed_weight"), inputs[0].toTensor());
  const int64_t rows = hidden.size(0), length = hidden.size(1), width = hidden.size(2);
  const at::Tensor normed = layer_norm(module, "norm1", hidden);
  const auto heads = [&](const char* name) {
    return linear(module, name, normed).view({rows, length, kHeads, -1}).transpose(1, 2);
  };
  const double scale = std::sqrt(static_cast<double>(width / kHeads));
  const at::Tensor weights = (at::matmul(heads("q"), heads("k").transpose(-2, -1)) / scale).softmax(-1);
  const at::Tensor mixed = at::matmul(weights, heads("v")).transpose(1, 2).reshape({rows, length, width});
  hidden = hidden + linear(module, "out", mixed);
  hidden = hidden + linear(module, "down", at::gelu(linear(module, "up", layer_norm(module, "norm2", hidden))));
  return linear(module, "head", hidden.mean(1));
}

std::shared_ptr<nn::CallbackModule> make_model(const std::string& name, const Tensors& start) {
  auto model = std::make_shared<nn::CallbackModule>(name);
  const std::string prefix = name + ".";
  for (const auto& [key, tensor] : start)
    if (key.compare(0, prefix.size(), prefix) == 0)
      model->add_parameter(flat(key.substr(prefix.size())), tensor.clone());
  if (name == "mlp") {
    model->set_forward(mlp);
  } else {
    model->set_forward(block);
  }
  return model;
}

class Comparison {
 public:
  explicit Comparison(double tolerance) : tolerance_(tolerance) {}

  // Sums of many numbers are compared by the size of what was summed.
  void same(double found, const c10::IValue& expected, const std::string& what, double size = 0) const {
    const double number = expected.toScalar().toDouble();
    EXPECT_NEAR(found, number, tolerance_ * std::max({std::abs(number), size, kSmall})) << what;
  }

 private:
  static constexpr double kSmall = 0.05;
  double tolerance_;
};

// Scores of attention do not depend on the bias of the keys: its gradient is rounding, which Adam makes as large as its
// rate.
bool is_rounding(const std::string& parameter, const std::string& optimizer) {
  return parameter == "k_bias" && optimizer.compare(0, 4, "adam") == 0;
}

void check_parameters(const nn::Module& model, const c10::IValue& expected, const std::string& optimizer,
                      const Comparison& comparison) {
  for (const auto& entry : expected.toGenericDict()) {
    const std::string name = flat(entry.key().toStringRef());
    if (is_rounding(name, optimizer)) continue;
    const at::Tensor parameter = nn::find_tensor(model, name).detach();
    EXPECT_EQ(integers(member(entry.value(), "shape")), parameter.sizes().vec()) << name;
    comparison.same(parameter.to(at::kDouble).sum().item<double>(), member(entry.value(), "sum"), name + " sum",
                    parameter.abs().sum().item<double>());
    const c10::IValue first = member(entry.value(), "first");
    for (size_t i = 0; i < first.toListRef().size(); i++)
      comparison.same(parameter.reshape({-1})[static_cast<int64_t>(i)].item<double>(), first.toListRef()[i],
                      text(name, "[", i, "]"));
  }
}

std::shared_ptr<optim::Scheduler> falling(const std::shared_ptr<optim::Optimizer>& optimizer, double total) {
  return std::make_shared<optim::LrScheduler>(optimizer, optim::factor_schedule([total](int64_t step) {
                                                return std::max(0.0, 1 - static_cast<double>(step) / total);
                                              }));
}

void check_case(const tests::AcceleratorPtr& accelerator, const c10::IValue& input, const c10::IValue& expected,
                const Tensors& start) {
  const std::string name = member(input, "model").toStringRef();
  const Comparison comparison(member(input, "mixed_precision").toStringRef() == "bf16" ? 3e-2 : 1e-5);
  const auto inner = make_model(name, start);
  const auto plain =
      make_optimizer(member(input, "optimizer").toStringRef(), member(input, "optimizer_arguments"), inner);
  const auto total = optional_member(input, "scheduler_total");
  std::vector<accelerator::PreparedObject> objects(total ? 4 : 3);
  objects[0].model = inner;
  objects[1].optimizer = plain;
  objects[2].loader = make_loader({start.at("data." + name + ".x"), start.at("data." + name + ".y")},
                                  member(input, "batch_size").toInt());
  if (total) objects[3].scheduler = falling(plain, total->toScalar().toDouble());
  const auto prepared = accelerator->preparation().prepare(objects);
  const auto clip = optional_member(input, "clip");
  const auto losses = member(expected, "losses").toListRef()[accelerator->state().process_index()].toListRef();
  const auto norms = member(expected, "grad_norms");
  const auto rates = member(expected, "lr");
  size_t batches = 0, clipped = 0;
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < member(input, "epochs").toInt(); epoch++)
    while (const auto batch = prepared[2].loader->next()) {
      const accelerator::MicroBatch micro_batch(accelerator, {prepared[0].model});
      const at::Tensor& target = batch->toListRef()[1].toTensor();
      const at::Tensor output = prepared[0].model->call(nn::Inputs{batch->toListRef()[0]}).toTensor();
      const at::Tensor loss = name == "mlp" ? at::mse_loss(output, target) : at::cross_entropy_loss(output, target);
      accelerator->backward().run(loss);
      if (accelerator->state().gradient_state()->sync_gradients()) {
        steps++;
        if (clip && clip->toStringRef() == "norm") {
          const double limit = member(input, "clip_limit").toScalar().toDouble();
          const double norm = optim::clip_gradients_by_norm(inner->parameters(), limit).item<double>();
          comparison.same(norm, norms.toListRef()[clipped++], text("norm of step ", steps));
        } else if (clip) {
          optim::clip_gradients_by_value(inner->parameters(), member(input, "clip_limit").toScalar().toDouble());
        }
      }
      prepared[1].optimizer->step();
      if (total) prepared[3].scheduler->step();
      prepared[1].optimizer->zero_grad(/*set_to_none=*/true);
      ASSERT_LT(batches, losses.size());
      comparison.same(loss.item<double>(), losses[batches], text("loss of batch ", batches));
      comparison.same(plain->lr(0), rates.toListRef()[batches], text("rate after batch ", batches));
      batches++;
    }
  EXPECT_EQ(batches, losses.size());
  EXPECT_EQ(steps, member(expected, "optimizer_steps").toInt());
  check_parameters(*inner, member(expected, "parameters"), member(input, "optimizer").toStringRef(), comparison);
}

Precision precision_of(const std::string& name) {
  for (const Precision precision : {Precision::kFp16, Precision::kBf16})
    if (name == precision_name(precision)) return precision;
  EXPECT_EQ(name, "no");
  return Precision::kNo;
}

TEST(TrainingParity, SameLossesAndParametersAsTheReference) {
  const Tensors start = read_start();
  int compared = 0;
  for (const auto& test_case : read_cases("training")) {
    SCOPED_TRACE(test_case.name);
    const c10::IValue& input = test_case.input;
    StateSettings options;
    options.gradient_accumulation_steps = member(input, "accumulation").toInt();
    options.split_batches = member(input, "split_batches").toBool();
    options.mixed_precision = precision_of(member(input, "mixed_precision").toStringRef());
    tests::run_accelerators(
        static_cast<int>(member(input, "processes").toInt()), options,
        [&](const tests::AcceleratorPtr& accelerator) { check_case(accelerator, input, test_case.expected, start); });
    compared++;
  }
  EXPECT_GT(compared, 50);
}

}  // namespace training_test
}  // namespace accel::parity
