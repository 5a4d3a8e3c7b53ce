// SPDX-License-Identifier: Apache-2.0
// A run that goes from one number of ranks to another, by checkpoints, has the losses of one that is not interrupted.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/prepared_object.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/dataloader.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "optim/parameter_optimizer.hpp"
#include "optim/rules/rules.hpp"
#include "optim/schedules/lr_scheduler.hpp"

namespace accel::accelerator {
namespace resume_test {

using checkpoint::tests::Folder;

constexpr int64_t kRows = 40, kBatch = 8, kEpochs = 3;
constexpr int kStepsOfAnEpoch = kRows / kBatch;

nn::ModulePtr two_layers() {
  auto model = std::make_shared<nn::CallbackModule>("TwoLayers");
  model->add_parameter("first", at::linspace(-0.5, 0.5, 54).view({9, 6}));
  model->add_parameter("second", at::linspace(0.4, -0.4, 27).view({3, 9}));
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor hidden = at::tanh(at::linear(inputs[0].toTensor(), nn::find_tensor(module, "first")));
    return at::linear(hidden, nn::find_tensor(module, "second"));
  });
  return model;
}

struct Part {
  int ranks;
  int steps;         // that it makes
  std::string from;  // empty: the start
  std::string to;    // empty: it does not save
};

// The mean of the ranks' losses of each step.
std::vector<double> losses_of(const Part& part) {
  StateSettings settings;
  settings.split_batches = true;  // the same eight rows, whatever the number of ranks
  std::vector<double> losses(static_cast<size_t>(part.steps), 0);
  std::mutex mutex;
  tests::run_accelerators(part.ranks, settings, [&](const tests::AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = two_layers();
    const auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled));
    plain->add_group(inner->parameters(), 0.05, std::nullopt);
    data::LoaderOptions options;
    options.batch_size = kBatch;
    options.shuffle = true;
    options.seed = 3;
    const auto rows = at::arange(kRows * 6, at::kFloat).mul(0.37).sin().view({kRows, 6});
    std::vector<PreparedObject> objects(4);
    objects[0].model = inner;
    objects[1].optimizer = plain;
    data::LoaderData data;
    data.dataset = std::make_shared<data::TensorDataset>(std::vector<at::Tensor>{rows});
    objects[2].loader = std::make_shared<data::DataLoader>(data, options);
    objects[3].scheduler = std::make_shared<optim::LrScheduler>(plain, optim::step_schedule(4, 0.7));
    const auto prepared = accelerator->preparation().prepare(objects);
    if (!part.from.empty()) accelerator->checkpoints().load_state(part.from);
    for (int step = 0; step < part.steps;) {
      while (step < part.steps) {
        const auto batch = prepared[2].loader->next();
        if (!batch) break;
        const MicroBatch micro_batch(accelerator, {prepared[0].model});
        const at::Tensor loss = prepared[0].model->call(nn::Inputs{batch->toListRef()[0]}).toTensor().square().mean();
        accelerator->backward().run(loss);
        prepared[1].optimizer->step();
        prepared[3].scheduler->step();
        prepared[1].optimizer->zero_grad(true);
        const std::lock_guard<std::mutex> lock(mutex);
        losses[static_cast<size_t>(step++)] += loss.item<double>() / part.ranks;
      }
    }
    if (!part.to.empty()) accelerator->checkpoints().save_state(part.to);
  });
  return losses;
}

TEST(Resume, OnOtherNumbersOfRanksHasTheSameLosses) {
  const int steps = kStepsOfAnEpoch * static_cast<int>(kEpochs);
  const std::vector<double> expected = losses_of({1, steps, "", ""});
  ASSERT_LT(expected.back(), expected.front());
  for (const auto& [first, second] : {std::pair(1, 2), std::pair(2, 1), std::pair(4, 2)}) {
    SCOPED_TRACE(text(first, " ranks, then ", second));
    const Folder folder;
    std::vector<double> losses = losses_of({first, 3, "", folder / "a"});
    for (const Part& part : {Part{second, 4, folder / "a", folder / "b"}, Part{first, steps - 7, folder / "b", ""}}) {
      const std::vector<double> more = losses_of(part);
      losses.insert(losses.end(), more.begin(), more.end());
    }
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t step = 0; step < losses.size(); step++)
      EXPECT_NEAR(losses[step], expected[step], 1e-5 * std::abs(expected[step])) << "step " << step;
  }
}

}  // namespace resume_test
}  // namespace accel::accelerator
