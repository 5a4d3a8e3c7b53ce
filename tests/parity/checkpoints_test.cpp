// SPDX-License-Identifier: Apache-2.0
// Checkpoints that Accelerate wrote: they load, and training continues as Accelerate's does.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "accelerator/prepared_object.hpp"
#include "accelerator_ranks.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "config/generated/settings/state/state.hpp"
#include "fixture.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/module_walks.hpp"
#include "optim/schedules/lr_scheduler.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/device/generator.hpp"
#include "tensor/tree.hpp"
#include "training_objects.hpp"

namespace accel::parity {
namespace checkpoints_test {

constexpr double kTolerance = 2e-5;

std::string folder_of(const std::string& name) { return fixture_folder() + "/checkpoints/" + name; }

double number(const c10::IValue& value) { return value.toScalar().toDouble(); }

void expect_near(double found, const c10::IValue& expected, const std::string& what) {
  EXPECT_NEAR(found, number(expected), kTolerance * std::max(std::abs(number(expected)), 0.05)) << what;
}

// The summary of a tensor: dtype, shape, sum, first elements.
void expect_summary(const at::Tensor& tensor, const c10::IValue& summary, const std::string& what) {
  EXPECT_EQ(tensor.sizes().vec(), integers(member(summary, "shape"))) << what;
  expect_near(tensor.to(at::kDouble).sum().item<double>(), member(summary, "sum"), what);
  const c10::IValue first = member(summary, "first");
  for (size_t i = 0; i < first.toListRef().size(); i++)
    expect_near(tensor.reshape({-1})[static_cast<int64_t>(i)].item<double>(), first.toListRef()[i], what);
}

std::shared_ptr<nn::CallbackModule> make_net(bool tied) {
  constexpr int64_t kInputs = 5;
  const int64_t width = tied ? kInputs : 7;
  auto net = std::make_shared<nn::CallbackModule>("Net");
  const auto norm = std::make_shared<nn::BatchNorm>(kInputs);
  const auto first = std::make_shared<nn::Linear>(kInputs, width, true);
  const auto second = std::make_shared<nn::Linear>(width, kInputs, true);
  net->add_child("norm", norm);
  net->add_child("first", first);
  net->add_child("second", second);
  if (tied) nn::tie(*net, "second.weight", "first.weight");
  net->set_forward([norm, first, second](nn::Module&, const nn::Inputs& inputs) -> c10::IValue {
    return second->call(nn::Inputs{at::tanh(first->call(nn::Inputs{norm->call(inputs)}).toTensor())});
  });
  return net;
}

c10::IValue arguments_of(const std::string& optimizer) {
  auto arguments = tree::new_map();
  const auto set = [&](const char* key, double value) { arguments.insert(key, value); };
  if (optimizer == "sgd") set("lr", 0.1);
  if (optimizer == "momentum") {
    set("lr", 0.05);
    set("momentum", 0.9);
  }
  if (optimizer == "adam" || optimizer == "adamw") set("lr", 0.01);
  if (optimizer == "adamw") set("weight_decay", 0.1);
  return arguments;
}

optim::Schedule schedule_of(const std::string& name) {
  return name == "step" ? optim::step_schedule(2, 0.5) : optim::linear_schedule(0.25, 1.0, 6);
}

at::Tensor rows_of(const c10::IValue& list) {
  std::vector<double> numbers;
  for (const c10::IValue& row : list.toListRef())
    for (const c10::IValue& item : row.toListRef()) numbers.push_back(number(item));
  return at::tensor(numbers, at::kFloat).view({static_cast<int64_t>(list.toListRef().size()), -1});
}

struct Resumed {
  std::vector<nn::ModulePtr> inner;
  std::vector<accelerator::PreparedObject> prepared;  // models, optimizers, schedulers
  std::vector<c10::IValue> loaded;                    // by the registered objects
};

void prepare(const tests::AcceleratorPtr& accelerator, const c10::IValue& input, Resumed& run) {
  std::vector<accelerator::PreparedObject> objects;
  const auto names = member(input, "optimizers").toListRef(), schedules = member(input, "schedulers").toListRef();
  for (size_t i = 0; i < names.size(); i++) run.inner.push_back(make_net(member(input, "tied").toBool()));
  for (const nn::ModulePtr& net : run.inner) objects.emplace_back().model = net;
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers;
  for (size_t i = 0; i < names.size(); i++) {
    const std::string& name = names[i].toStringRef();
    optimizers.push_back(make_optimizer(name, arguments_of(name), run.inner[i]));
    objects.emplace_back().optimizer = optimizers.back();
  }
  for (size_t i = 0; i < schedules.size(); i++)
    objects.emplace_back().scheduler =
        std::make_shared<optim::LrScheduler>(optimizers[i], schedule_of(schedules[i].toStringRef()));
  run.prepared = accelerator->preparation().prepare(objects);
  for (size_t i = 0; i < member(input, "custom").toListRef().size(); i++)
    accelerator->checkpoints().register_for_checkpointing(
        {"", [] { return c10::IValue(); }, [&run](const c10::IValue& state) { run.loaded.push_back(state); }});
}

void expect_resumed(const tests::AcceleratorPtr& accelerator, const c10::IValue& input, const c10::IValue& expected,
                    Resumed& run) {
  const size_t models = run.inner.size();
  const at::Tensor rows = rows_of(member(input, "inputs"));
  for (const c10::IValue& losses : member(expected, "losses").toListRef()) {
    for (size_t i = 0; i < models; i++) {
      const at::Tensor loss = run.prepared[i].model->call(nn::Inputs{rows}).toTensor().pow(2).mean();
      accelerator->backward().run(loss);
      run.prepared[models + i].optimizer->step();
      run.prepared[models + i].optimizer->zero_grad(true);
      expect_near(loss.item<double>(), losses.toListRef()[i], text("loss of model ", i));
    }
    for (size_t i = 2 * models; i < run.prepared.size(); i++) run.prepared[i].scheduler->step();
  }
  for (size_t i = 0; i < models; i++) {
    const auto parameters = member(expected, "parameters").toListRef()[i].toGenericDict();
    for (const auto& entry : parameters)
      expect_summary(nn::find_tensor(*run.inner[i], entry.key().toStringRef()).detach(), entry.value(),
                     entry.key().toStringRef());
    expect_near(run.prepared[models + i].optimizer->groups()[0].lr, member(expected, "lr").toListRef()[i], "lr");
  }
}

void expect_custom(const Resumed& run, const c10::IValue& expected) {
  ASSERT_EQ(run.loaded.size(), expected.toListRef().size());
  for (size_t i = 0; i < run.loaded.size(); i++) {
    const auto loaded = run.loaded[i].toGenericDict();
    const c10::IValue& object = expected.toListRef()[i];
    EXPECT_EQ(loaded.at("value").toInt(), member(object, "value").toInt());
    EXPECT_EQ(loaded.at("words").toListRef(), member(object, "words").toListRef());
    expect_summary(loaded.at("tensor").toTensor(), member(object, "tensor"), "tensor");
  }
}

TEST(CheckpointsParity, TrainingContinuesFromTheReferencesFolders) {
  int compared = 0;
  for (const auto& test_case : read_cases("checkpoints/expected")) {
    if (member(test_case.input, "kind").toStringRef() != "save_state") continue;
    SCOPED_TRACE(test_case.name);
    const c10::IValue& input = test_case.input;
    const c10::IValue& expected = test_case.expected;
    tests::run_accelerators(
        static_cast<int>(member(input, "processes").toInt()), {}, [&](const tests::AcceleratorPtr& accelerator) {
          Resumed run;
          prepare(accelerator, input, run);
          EXPECT_EQ(accelerator->checkpoints().load_state(folder_of(test_case.name)), std::nullopt);
          const int rank = accelerator->state().process_index();
          if (member(input, "processes").toInt() == 1) {  // ranks that are threads share the generator
            const at::Tensor drawn = at::rand({4});
            const auto next = member(expected, "next_rand").toListRef()[static_cast<size_t>(rank)].toListRef();
            for (size_t i = 0; i < next.size(); i++)
              expect_near(drawn[static_cast<int64_t>(i)].item<double>(), next[i], "draw");
          }
          expect_custom(run, member(expected, "custom_after_load"));
          expect_resumed(accelerator, input, member(expected, "resumed"), run);
        });
    compared++;
  }
  EXPECT_EQ(compared, 7);
}

TEST(CheckpointsParity, TheScalerOfTheReferenceIsRead) {
  for (const auto& test_case : read_cases("checkpoints/expected")) {
    if (test_case.name != "state_scaler") continue;
    precision::GradScaler scaler({});
    scaler.load_state_dict(
        checkpoint::read_torch_file(std::make_shared<const MappedFile>(folder_of("state_scaler") + "/scaler.pt")));
    const c10::IValue expected = member(test_case.expected, "scaler");
    EXPECT_EQ(scaler.scale(), number(member(expected, "scale")));
    EXPECT_EQ(scaler.settings().growth_interval, member(expected, "growth_interval").toInt());
    return;
  }
  FAIL() << "no case with a scaler";
}

TEST(CheckpointsParity, EveryRankHasItsRandomState) {
  for (const auto& test_case : read_cases("checkpoints/expected")) {
    if (member(test_case.input, "kind").toStringRef() != "save_state") continue;
    const auto ranks = member(test_case.expected, "next_rand").toListRef();
    for (size_t rank = 0; rank < ranks.size(); rank++) {
      const std::string path = text(folder_of(test_case.name), "/random_states_", rank, ".pkl");
      const auto saved = checkpoint::read_torch_file(std::make_shared<const MappedFile>(path)).toGenericDict();
      at::Generator generator = tensor::new_generator(0, at::kCPU);
      tensor::set_generator_state(generator, saved.at("torch_manual_seed").toTensor());
      const at::Tensor drawn = at::rand({4}, generator);
      for (size_t i = 0; i < 4; i++)
        expect_near(drawn[static_cast<int64_t>(i)].item<double>(), ranks[rank].toListRef()[i], path);
      EXPECT_EQ(tree::sequence_items(saved.at("random_state")).size(), 3U) << path;
      const auto numpy = tree::sequence_items(saved.at("numpy_random_seed"));
      EXPECT_EQ(numpy[0].toStringRef(), "MT19937");
      EXPECT_EQ(numpy[1].toTensor().numel(), 624);
    }
  }
}

}  // namespace checkpoints_test
}  // namespace accel::parity
