// SPDX-License-Identifier: Apache-2.0
// Loss scaling on a device: the scale, the check for overflows and what they skip stay there, and a step waits for
// nothing. What the host hears later is what it would have read.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "base/error.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/dataloader_config.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/prepared_dataloader.hpp"
#include "data/sampler.hpp"
#include "device_fixture.hpp"
#include "engine/mesh_ranks.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/sequential.hpp"
#include "optim/rules/rules.hpp"
#include "optim/schedules/lr_scheduler.hpp"
#include "precision/grad_scaler.hpp"
#include "precision/overflow_flag.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace loss_scaling_test {

using precision::BackoffRules;
using precision::GradScaler;
using precision::OverflowFlag;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Rule = std::pair<std::string, optim::RulePtr (*)()>;

// Some of the first steps overflow, when states are new.
constexpr bool kOverflows[] = {true, false, true, false, false, true, true, false, false};
constexpr int kSteps = sizeof kOverflows;

struct Outcome {
  std::vector<at::Tensor> parameters;
  c10::IValue state;
};

class LossScaling : public tests::DeviceTest {
 protected:
  static int64_t waits() {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.host_waits;
  }
  static std::shared_ptr<OverflowFlag> flag(bool overflowed) {
    return std::make_shared<OverflowFlag>(at::full({}, overflowed ? 1 : 0, of_floats()));
  }
  static at::TensorOptions of_floats() { return at::TensorOptions().dtype(at::kFloat).device(device()); }
  static StateSettings on_the_device() {
    StateSettings settings;
    settings.torch_device = device().str();
    settings.num_processes = 1;
    settings.process_index = 0;
    return settings;
  }
  // Without a scale the steps that would overflow are left out by the program.
  static Outcome train(const Rule& rule, optim::UpdatePrecision precision, bool is_scaled, bool is_late = false) {
    accelerator::Accelerator accelerator(on_the_device());
    GradScalerSettings scaling;
    scaling.enabled = is_scaled;
    scaling.init_scale = 1024;
    scaling.growth_interval = 2;
    if (is_scaled) accelerator.precision().set_grad_scaler(scaling);
    const auto dtype = precision == optim::UpdatePrecision::kAsStored ? at::kFloat : at::kBFloat16;
    const auto generator = at::detail::createCPUGenerator(3);
    const auto random = [&](at::IntArrayRef shape) {
      return at::randn(shape, generator, at::kFloat).to(device(), dtype);
    };
    std::vector<std::vector<int64_t>> shapes = {{8, 12}, {4, 4}};
    if (rule.first != "muon") shapes.push_back({12});
    Outcome outcome;
    for (const auto& shape : shapes) outcome.parameters.push_back(random(shape).requires_grad_());
    const auto inner = optim::make_optimizer(rule.second());
    inner->add_group(outcome.parameters, 0.05, 0.01);
    inner->set_update_precision(0, precision);
    if (inner->has_setting("momentum") && rule.first == "sgd") {
      inner->set_setting(0, "momentum", 0.9);
      inner->set_setting(0, "dampening", 0.3);  // of which a first step has none
    }
    const auto optimizer = accelerator.preparation().prepare_optimizer(inner);
    const auto scheduler = accelerator.preparation().prepare_scheduler(
        std::make_shared<optim::LrScheduler>(inner, optim::exponential_schedule(0.5)));
    std::vector<std::vector<at::Tensor>> gradients(kSteps);
    for (auto& of_step : gradients)
      for (const auto& shape : shapes) of_step.push_back(random(shape));
    tensor::synchronize(device());
    const int64_t before = is_simulated() ? waits() : 0;
    for (int step = 0; step < kSteps; step++) {
      if (!is_scaled && kOverflows[step]) continue;
      at::Tensor scale;
      if (is_scaled) {
        GradScaler& scaler = *accelerator.prepared().grad_scaler;
        scale = scaler.begin_backward(device());
        if (!scale.defined()) scale = at::full({}, scaler.scale(), of_floats());
      }
      for (size_t i = 0; i < outcome.parameters.size(); i++) {
        at::Tensor gradient = gradients[static_cast<size_t>(step)][i];
        if (is_scaled) gradient = (gradient * scale).to(dtype);
        if (is_scaled && kOverflows[step] && i == 1) gradient.select(0, 0).fill_(kInfinity);
        outcome.parameters[i].mutable_grad() = gradient;
      }
      EXPECT_TRUE(optimizer->step());
      scheduler->step();
    }
    if (is_simulated() && !is_late) {
      EXPECT_EQ(waits(), before);
    }
    EXPECT_EQ(scheduler->last_lr(0), 0.05 / 32);
    outcome.state = optimizer->state_dict();
    EXPECT_EQ(optimizer->step_was_skipped(), false);
    for (at::Tensor& parameter : outcome.parameters) parameter = parameter.detach().cpu();
    return outcome;
  }
};

// The least scale is an error in the step that it is one of, on the host and on the device.
TEST_F(LossScaling, ScalesAreTheHosts) {
  const auto generator = at::detail::createCPUGenerator(5);
  for (const BackoffRules& rules :
       {BackoffRules{}, BackoffRules{true}, BackoffRules{false, 2}, BackoffRules{false, 3, true},
        BackoffRules{false, 1, false, 64}, BackoffRules{false, 2, true, 100}}) {
    SCOPED_TRACE(text(rules.hysteresis, " ", rules.is_consecutive, " ", rules.least_scale));
    GradScalerSettings settings;
    settings.init_scale = 1024;
    settings.growth_interval = 3;
    settings.growth_factor = 1.7;
    settings.backoff_factor = 0.3;
    GradScaler on_host(settings), on_device(settings);
    on_host.follow(settings, rules);
    on_device.follow(settings, rules);
    const auto fails = [](auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kInvalidState);
        return true;
      }
      return false;
    };
    for (int step = 0; step < 200; step++) {
      const bool overflowed = at::rand({}, generator, at::kFloat).item<float>() < 0.3f;
      const auto there = flag(overflowed);
      EXPECT_EQ(fails([&] { on_device.update(there, nullptr); }), fails([&] { on_host.update(overflowed, nullptr); }));
      const at::Tensor scale = on_device.begin_backward(device());
      if (scale.defined()) {
        ASSERT_EQ(scale.item<float>(), static_cast<float>(on_host.scale())) << "step " << step;
      }
      if (step % 7 != 0) continue;
      ASSERT_EQ(on_device.scale(), on_host.scale()) << "step " << step;
      ASSERT_EQ(on_device.growth_tracker(), on_host.growth_tracker()) << "step " << step;
    }
  }
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  for (size_t i = 0; i < got.parameters.size(); i++)
    EXPECT_TRUE(at::equal(got.parameters[i], expected.parameters[i])) << "parameter " << i;
  std::vector<at::Tensor> of_got, of_expected;
  tree::for_each_tensor(got.state, [&](const at::Tensor& tensor) { of_got.push_back(tensor.cpu()); });
  tree::for_each_tensor(expected.state, [&](const at::Tensor& tensor) { of_expected.push_back(tensor.cpu()); });
  ASSERT_EQ(of_got.size(), of_expected.size());
  for (size_t i = 0; i < of_got.size(); i++) EXPECT_TRUE(at::equal(of_got[i], of_expected[i])) << "tensor " << i;
}

TEST_F(LossScaling, SkippedUpdatesLeaveNoTrace) {
  using optim::UpdatePrecision;
  using optim::WeightDecay;
  const std::vector<Rule> rules = {
      {"sgd", optim::sgd_rule},
      {"adam", [] { return optim::adam_rule(WeightDecay::kInGradient); }},
      {"adamw", [] { return optim::adam_rule(WeightDecay::kDecoupled); }},
      {"nadam", optim::nadam_rule},
      {"radam", optim::radam_rule},
      {"adamax", optim::adamax_rule},
      {"adagrad", optim::adagrad_rule},
      {"rmsprop", optim::rmsprop_rule},
      {"lion", optim::lion_rule},
      {"lamb", optim::lamb_rule},
      {"adafactor", optim::adafactor_rule},
      {"muon", optim::muon_rule},
      {"schedule_free_sgd", optim::schedule_free_sgd_rule},
      {"schedule_free_adamw", optim::schedule_free_adamw_rule},
  };
  for (const Rule& rule : rules)
    for (const UpdatePrecision precision : {UpdatePrecision::kAsStored, UpdatePrecision::kMasterWeights}) {
      SCOPED_TRACE(text(rule.first, " ", static_cast<int>(precision)));
      expect_equal(train(rule, precision, /*is_scaled=*/true), train(rule, precision, /*is_scaled=*/false));
    }
}

// The flag of a step arrives when the host has queued the next one, and is waited for.
TEST_F(LossScaling, FlagsThatAreLateSkipTheSame) {
  const std::vector<Rule> rules = {{"adamw", [] { return optim::adam_rule(optim::WeightDecay::kDecoupled); }},
                                   {"nadam", optim::nadam_rule},
                                   {"schedule_free_adamw", optim::schedule_free_adamw_rule}};
  const auto precision = optim::UpdatePrecision::kMasterWeights;
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.first);
    const Outcome expected = train(rule, precision, /*is_scaled=*/false);
    be_late({7, 300});
    expect_equal(train(rule, precision, /*is_scaled=*/true, /*is_late=*/true), expected);
    be_late({0, 0});
  }
}

// Two optimizers take their steps one after the other; the first one's overflow changes the scale.
TEST_F(LossScaling, GradientsOfAnotherOptimizerFollowTheScale) {
  const auto scaler = std::make_shared<GradScaler>(GradScalerSettings());
  const auto with_gradient = [](float value) {
    at::Tensor parameter = at::full({1}, 0, of_floats()).requires_grad_(true);
    parameter.mutable_grad() = at::full({1}, value, of_floats());
    return parameter;
  };
  const auto gradients_of = [&](const at::Tensor& parameter) {
    return precision::ScaledGradients::create(scaler, [parameter] { return std::vector<at::Tensor>{parameter}; });
  };
  const at::Tensor first = with_gradient(kInfinity), second = with_gradient(65536), third = with_gradient(65536);
  const auto of_first = gradients_of(first), of_second = gradients_of(second), of_third = gradients_of(third);
  scaler->scale_for_backward();
  of_third->unscale();
  of_first->finish(std::make_shared<OverflowFlag>(of_first->found()));
  EXPECT_FALSE(of_second->overflowed());
  EXPECT_EQ(scaler->scale(), 32768);
  EXPECT_EQ(second.grad().item<float>(), 1);
  EXPECT_EQ(third.grad().item<float>(), 1);
}

// The program asks after each step, and hears what the device has found.
TEST_F(LossScaling, QuestionsAreAnswered) {
  accelerator::Accelerator accelerator(on_the_device());
  GradScalerSettings scaling;
  scaling.enabled = true;
  scaling.init_scale = 8;
  accelerator.precision().set_grad_scaler(scaling);
  const at::Tensor parameter = at::full({2}, 1, of_floats()).requires_grad_();
  const auto inner = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled));
  inner->add_group({parameter}, 0.5, std::nullopt);
  const auto optimizer = accelerator.preparation().prepare_optimizer(inner);
  const auto scheduler = accelerator.preparation().prepare_scheduler(
      std::make_shared<optim::LrScheduler>(inner, optim::exponential_schedule(0.5)));
  GradScaler& scaler = *accelerator.prepared().grad_scaler;
  double scale = 8, lr = 0.5, steps = 0;
  for (const bool overflows : kOverflows) {
    EXPECT_EQ(scaler.scale_for_backward(), scale);
    parameter.mutable_grad() = at::full({2}, overflows ? kInfinity : static_cast<float>(scale), of_floats());
    EXPECT_TRUE(optimizer->step());
    scheduler->step();
    if (overflows)
      scale /= 2;
    else
      lr /= 2, steps += 1;
    EXPECT_EQ(optimizer->step_was_skipped(), overflows);
    EXPECT_EQ(optimizer->lr(0), lr);  // a step that is skipped moves no rate
    EXPECT_EQ(scheduler->last_lr(0), lr);
    EXPECT_EQ(scaler.scale(), scale);
    const auto states = optimizer->state_dict().toGenericDict().at("state").toGenericDict();
    EXPECT_EQ(states.empty(), steps == 0);
    if (steps > 0) {
      EXPECT_EQ(states.at(states.begin()->key()).toGenericDict().at("step").toTensor().item<float>(), steps);
    }
  }
}

// Everything that a loop does, in float16: batches, forward, backward, accumulation, clipping, update, schedule.
TEST_F(LossScaling, AStepWaitsForNothing) {
  NEEDS_SIMULATION("counts of waits");
  for (const bool is_fused : {true, false}) {
    StateSettings settings = on_the_device();
    settings.mixed_precision = Precision::kFp16;
    settings.gradient_accumulation_steps = 2;
    const auto accelerator = std::make_shared<accelerator::Accelerator>(settings);
    Preparation& preparation = accelerator->preparation();
    const auto network = std::make_shared<nn::Sequential>(
        std::vector<nn::ModulePtr>{std::make_shared<nn::Linear>(16, 32, true), std::make_shared<nn::Activation>("gelu"),
                                   std::make_shared<nn::Linear>(32, 4, true)});
    const auto model = preparation.prepare_model(network);
    const auto inner =
        optim::make_optimizer(is_fused ? optim::adam_rule(optim::WeightDecay::kDecoupled) : optim::lion_rule());
    inner->add_group(network->parameters(), 1e-3, 0.01);
    const auto optimizer = preparation.prepare_optimizer(inner);
    const auto scheduler =
        preparation.prepare_scheduler(std::make_shared<optim::LrScheduler>(inner, optim::exponential_schedule(0.9)));
    constexpr int64_t kRows = 96;
    data::LoaderOptions options;
    options.batch_size = 8;
    const auto loader = preparation.prepare_data_loader(
        data::DataLoader(std::make_shared<data::TensorDataset>(std::vector<at::Tensor>{at::randn({kRows, 16})}),
                         std::make_shared<data::SequentialSampler>(kRows), options),
        {});
    int64_t before = 0, batches = 0;
    while (const auto batch = loader->next()) {
      if (batches++ == 2) before = waits();  // the first update makes the states
      const MicroBatch micro_batch(accelerator, {model});
      at::Tensor rows;
      tree::for_each_tensor(*batch, [&](const at::Tensor& tensor) { rows = tensor; });
      const at::Tensor loss = model->call(nn::Inputs{rows}).toTensor().square().mean();
      accelerator->backward().run(loss);
      accelerator->clipping().clip_gradients_by_norm(model, 1.0, 2.0);
      EXPECT_EQ(optimizer->step(), batches % 2 == 0);
      scheduler->step();
      optimizer->zero_grad(/*set_to_none=*/true);
    }
    EXPECT_EQ(waits(), before);
    EXPECT_EQ(batches, kRows / 8);
    EXPECT_FALSE(optimizer->step_was_skipped());
    EXPECT_LT(scheduler->last_lr(0), 1e-3);
  }
}

// Ranks with a device each have parts of a model. Gradients of one of them overflow.
TEST_F(LossScaling, AnOverflowOfOneRankSkipsTheStepsOfAll) {
  tests::on_mesh(
      {1, 2, 1},
      [](const tests::AcceleratorPtr& accelerator) {
        const c10::DeviceGuard guard(accelerator->state().device());
        if (device_count() < 2) c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
        GradScalerSettings scaling;
        scaling.enabled = true;
        scaling.init_scale = 8;
        accelerator->precision().set_grad_scaler(scaling);
        const auto layer = std::make_shared<nn::Linear>(6, 4, true);
        const auto inner = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled));
        inner->add_group(layer->parameters(), 0.1, std::nullopt);
        PrepareModelSettings settings;
        settings.fsdp.enabled = true;
        const auto model = accelerator->preparation().prepare_model(layer, settings);
        const auto optimizer = accelerator->preparation().prepare_optimizer(inner);
        const auto scheduler = accelerator->preparation().prepare_scheduler(
            std::make_shared<optim::LrScheduler>(inner, optim::exponential_schedule(0.5)));
        const at::Tensor rows = at::full({2, 6}, 0.3, at::TensorOptions(accelerator->state().device()));
        for (const bool overflows : {true, false}) {
          const auto values = [&] {
            std::vector<at::Tensor> copies;
            for (const at::Tensor& parameter : inner->parameters()) copies.push_back(parameter.detach().cpu().clone());
            return copies;
          };
          const auto before = values();
          accelerator->backward().run(model->call(nn::Inputs{rows}).toTensor().square().mean());
          if (overflows && accelerator->state().process_index() == 1)
            for (const at::Tensor& parameter : inner->parameters())
              if (parameter.grad().defined()) parameter.grad().fill_(kInfinity);
          EXPECT_TRUE(optimizer->step());
          scheduler->step();
          optimizer->zero_grad(/*set_to_none=*/true);
          EXPECT_EQ(optimizer->step_was_skipped(), overflows);
          const auto after = values();
          for (size_t i = 0; i < after.size(); i++)
            EXPECT_TRUE(after[i].numel() == 0 || at::equal(after[i], before[i]) == overflows);
          EXPECT_EQ(accelerator->prepared().grad_scaler->scale(), 4);
          EXPECT_EQ(scheduler->last_lr(0), overflows ? 0.1 : 0.025);  // one step for each rank
        }
      },
      [](StateSettings& settings, int rank) {
        settings.cpu = false;
        settings.torch_device = device(rank).str();
      });
}

}  // namespace loss_scaling_test
}  // namespace accel::accelerator
