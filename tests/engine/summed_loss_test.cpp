// SPDX-License-Identifier: Apache-2.0
// Backwards of sums give the gradients of one big batch on one process, whatever makes models exchange gradients ahead
// of the window's end, or not.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>

#include "accelerator/prepared_model.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "config/generated/settings/state/state.hpp"
#include "fsdp_fixture.hpp"
#include "optim/rules/rules.hpp"

namespace accel::accelerator {
namespace summed_loss_test {

using parallel::fsdp_fixture::by_blocks;
using parallel::fsdp_fixture::make_model;
using parallel::fsdp_fixture::rows_of_step;
using parallel::fsdp_fixture::whole_parameters;
using tests::AcceleratorPtr;

using Weights = std::map<std::string, at::Tensor>;

// How the four micro-batches of a window are set apart.
enum class Window {
  kOfModels,       // accel_accumulate_begin() with the model
  kOfNoModels,     // accel_accumulate_begin() without models
  kOfState,        // accel_set_sync_gradients()
  kNoSyncOfState,  // accel_set_sync_gradients(), with the exchange of the model turned off
  kTriggered,      // kOfModels, and the second backward exchanges
};

constexpr int kMicroBatches = 4;
constexpr std::array<int64_t, 9> kCuts = {0, 1, 2, 3, 4, 7, 8, 10, 12};  // unequal rows on two ranks

void run_micro_batch(const AcceleratorPtr& accelerator, const nn::ModulePtr& model, Window window, int number) {
  const bool ends = number == kMicroBatches - 1;
  const bool is_of_state = window == Window::kOfState || window == Window::kNoSyncOfState;
  std::optional<MicroBatch> micro;
  std::optional<NoSyncGuard> no_sync;
  if (is_of_state) accelerator->state().gradient_state()->set_sync_gradients(ends);
  if (window == Window::kNoSyncOfState && !ends) no_sync.emplace(std::vector<nn::ModulePtr>{model});
  if (!is_of_state)
    micro.emplace(accelerator,
                  window == Window::kOfNoModels ? std::vector<nn::ModulePtr>{} : std::vector<nn::ModulePtr>{model});
  const auto place = static_cast<size_t>(kMicroBatches * accelerator->state().process_index() + number);
  const at::Tensor rows = rows_of_step(0).slice(0, kCuts[place], kCuts[place + 1]);
  const at::Tensor loss = model->call(nn::Inputs{rows}).toTensor().square().sum();
  std::optional<TriggerSyncGuard> trigger;
  if (window == Window::kTriggered && number == 1) trigger.emplace(model);
  accelerator->backward().run_sum(loss, rows.size(0));
}

Weights weights_after_a_step(Window window, bool sharded) {
  Weights weights;
  StateSettings settings;
  settings.gradient_accumulation_steps = kMicroBatches;
  tests::run_accelerators(2, settings, [&](const AcceleratorPtr& accelerator) {
    PrepareModelSettings preparation;
    if (sharded) preparation.fsdp = by_blocks();
    const nn::ModulePtr inner = make_model();
    const auto plain = optim::make_optimizer(optim::sgd_rule(), {{"lr", 0.5}});
    plain->add_group(inner->parameters(), std::nullopt, std::nullopt);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, preparation);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    for (int number = 0; number < kMicroBatches; number++) run_micro_batch(accelerator, model, window, number);
    EXPECT_TRUE(optimizer->step());
    auto whole = whole_parameters(*require_prepared(model));
    if (accelerator->state().process_index() == 0) weights = std::move(whole);
  });
  return weights;
}

Weights weights_of_one_process() {
  const nn::ModulePtr model = make_model();
  const at::Tensor rows = rows_of_step(0);
  (model->call(nn::Inputs{rows}).toTensor().square().sum() / static_cast<double>(rows.size(0))).backward();
  Weights weights;
  for (const auto& [name, parameter] : nn::named_parameters(*model))
    weights[name] = parameter.detach() - parameter.grad() * 0.5;
  return weights;
}

void expect_one_big_batch(Window window) {
  const Weights expected = weights_of_one_process();
  for (const bool sharded : {false, true}) {
    const Weights found = weights_after_a_step(window, sharded);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, weight] : expected)
      EXPECT_TRUE(at::allclose(found.at(name), weight, 1e-5, 1e-6)) << name << ", sharded " << sharded;
  }
}

TEST(SummedLoss, IsOneBigBatchInMicroBatchesOfModels) { expect_one_big_batch(Window::kOfModels); }
TEST(SummedLoss, IsOneBigBatchInMicroBatchesWithoutModels) { expect_one_big_batch(Window::kOfNoModels); }
TEST(SummedLoss, IsOneBigBatchWhereTheStateKeepsTheWindowOpen) { expect_one_big_batch(Window::kOfState); }
TEST(SummedLoss, IsOneBigBatchWhereTheProgramTurnsTheExchangeOff) { expect_one_big_batch(Window::kNoSyncOfState); }
TEST(SummedLoss, IsOneBigBatchWhereABackwardTriggersTheExchange) { expect_one_big_batch(Window::kTriggered); }

}  // namespace summed_loss_test
}  // namespace accel::accelerator
