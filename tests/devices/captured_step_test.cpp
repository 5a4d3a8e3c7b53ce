// SPDX-License-Identifier: Apache-2.0
// Captured steps: what a device records and does again equals the steps of a program that records nothing.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/capture/captured_step.hpp"
#include "config/generated/settings/prepare/grad_scaler.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "config/generated/settings/state/state.hpp"
#include "device_fixture.hpp"
#include "engine/expect_error.hpp"
#include "engine/mesh_ranks.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "optim/clip.hpp"
#include "optim/rules/rules.hpp"
#include "optim/schedules/lr_scheduler.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/device/graph_recorder.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace captured_step_test {

using tests::expect_error;
using Rule = optim::RulePtr (*)();

optim::RulePtr adamw() { return optim::adam_rule(optim::WeightDecay::kDecoupled); }

optim::RulePtr of_the_program() {
  return optim::callback_rule(
      {}, [](const optim::CallbackUpdate& update) { update.parameter.sub_(update.gradient * 0.1); });
}

// Two layers, with a dropout between them.
nn::ModulePtr make_model(double dropout) {
  const auto generator = at::detail::createCPUGenerator(1);
  auto model = std::make_shared<nn::CallbackModule>("TwoLayers");
  const auto add = [&](const char* name, at::IntArrayRef shape) {
    model->add_parameter(name, at::randn(shape, generator, at::kFloat) * 0.3, true);
  };
  add("first", {5, 16});
  add("first_bias", {16});
  add("second", {16, 1});
  add("second_bias", {1});
  model->set_forward([dropout](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    const auto parameter = [&](const char* name) { return nn::find_tensor(module, name); };
    at::Tensor hidden = at::relu(at::addmm(parameter("first_bias"), inputs[0].toTensor(), parameter("first")));
    if (dropout > 0) hidden = at::dropout(hidden, dropout, module.is_training());
    return at::addmm(parameter("second_bias"), hidden, parameter("second"));
  });
  return model;
}

c10::IValue batch(int step, int64_t rows = 6) {
  const auto generator = at::detail::createCPUGenerator(100 + static_cast<uint64_t>(step));
  return at::randn({rows, 5}, generator, at::kFloat);
}

// A training on the device, of one rank or of several.
struct Training {
  Training(c10::Device device, Rule rule, double dropout, Precision precision = Precision::kNo)
      : Training(of_one_rank(device, precision), rule, dropout) {}
  Training(std::shared_ptr<Accelerator> of_rank, Rule rule, double dropout, const PrepareModelSettings& preparing = {})
      : own_accelerator(std::move(of_rank)), accelerator(*own_accelerator) {
    model = accelerator.preparation().prepare_model(make_model(dropout), preparing);
    const auto own = optim::make_optimizer(rule());
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : model->parameters())
      if (rule != &optim::muon_rule || parameter.dim() == 2) parameters.push_back(parameter);
    own->add_group(parameters, 0.02, 0.01);
    optimizer = accelerator.preparation().prepare_optimizer(own);
  }

  // With a scale by which no first step overflows.
  static std::shared_ptr<Accelerator> of_one_rank(c10::Device device, Precision precision) {
    auto made = std::make_shared<Accelerator>(settings(device, precision));
    GradScalerSettings scaling;
    scaling.init_scale = 1024;
    made->precision().set_grad_scaler(scaling);
    return made;
  }
  static StateSettings settings(c10::Device device, Precision precision) {
    StateSettings settings;
    settings.torch_device = device.str();
    settings.mixed_precision = precision;
    settings.num_processes = 1;
    settings.process_index = 0;
    return settings;
  }

  c10::IValue step(const c10::IValue& inputs) {
    optimizer->zero_grad(/*set_to_none=*/true);
    const at::Tensor loss = model->call(inputs.toTensor()).square().mean();
    accelerator.backward().run(loss);
    if (extra) extra(loss);
    optim::clip_gradients_by_norm(model->parameters(), 1.0);
    optimizer->step();
    return loss;
  }
  StepFunction function() {
    return [this](const c10::IValue& inputs) { return step(inputs); };
  }
  CapturedStep captured(const CaptureSettings& given = {}) {
    return CapturedStep(accelerator.state(), accelerator.prepared(), function(), given);
  }
  // A step without a capture.
  c10::IValue plain(const c10::IValue& inputs) {
    return step(inputs.toTensor().to(accelerator.state().device())).toTensor().detach();
  }

  precision::GradScaler& scaler() { return *accelerator.prepared().grad_scaler; }

  std::shared_ptr<Accelerator> own_accelerator;
  Accelerator& accelerator;
  nn::ModulePtr model;
  std::shared_ptr<optim::Optimizer> optimizer;
  std::function<void(const at::Tensor& loss)> extra;  // within the step
};

class CapturedSteps : public tests::DeviceTest {
 protected:
  CapturedSteps() : DeviceTest(tests::LateStreams{7, 200}) {}
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const std::string obstacle = tensor::recording_obstacle(device_type());
    if (!obstacle.empty()) GTEST_SKIP() << kind() << " has no graphs: " << obstacle;
  }

  static void seed() {
    at::Generator generator = at::globalContext().defaultGenerator(device());
    generator.set_current_seed(11);
  }
  static void expect_same_weights(const Training& one, const Training& other) {
    const auto expected = other.model->parameters(), found = one.model->parameters();
    for (size_t i = 0; i < expected.size(); i++)
      EXPECT_TRUE(at::equal(found[i].cpu(), expected[i].cpu())) << "parameter " << i;
  }
  static float number(const c10::IValue& loss) { return loss.toTensor().item<float>(); }
  static int64_t operators() {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.operators;
  }
  static int64_t host_waits() {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.host_waits;
  }
};

TEST_F(CapturedSteps, EqualPlainOnesBitByBit) {
  for (const Rule rule : {&adamw, &optim::sgd_rule})
    for (const double dropout : {0.0, 0.25})
      for (const Precision precision : {Precision::kNo, Precision::kBf16, Precision::kFp16}) {
        SCOPED_TRACE(static_cast<int>(precision));
        std::vector<float> expected, found;
        Training plain(device(), rule, dropout, precision), training(device(), rule, dropout, precision);
        seed();
        for (int step = 0; step < 20; step++) expected.push_back(number(plain.plain(batch(step))));
        seed();
        CapturedStep captured = training.captured();
        for (int step = 0; step < 20; step++) found.push_back(number(captured.run(batch(step))));
        EXPECT_EQ(found, expected);
        expect_same_weights(training, plain);
        EXPECT_EQ(captured.counts().captures, 1);
        EXPECT_EQ(captured.counts().replays, 17) << "of 20, behind 3 of warm-up";
        EXPECT_TRUE(tree::equal(training.optimizer->state_dict(), plain.optimizer->state_dict()))
            << "steps are counted";
        // Evaluation with the weights as they are now, not with casts from before.
        const at::NoGradGuard no_grad;
        training.model->train(false);
        plain.model->train(false);
        const at::Tensor input = batch(50).toTensor().to(device());
        EXPECT_TRUE(at::equal(training.model->call(input).cpu(), plain.model->call(input).cpu()));
      }
}

TEST_F(CapturedSteps, CallNoOperatorsOfTheModel) {
  NEEDS_SIMULATION("counts of operators");
  Training training(device(), &adamw, 0);
  CapturedStep captured = training.captured();
  const c10::IValue inputs = batch(1).toTensor().to(device());
  for (int step = 0; step < 4; step++) captured.run(inputs);
  tensor::synchronize(device());
  const int64_t before = operators();
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kSteps = 50;
  for (int step = 0; step < kSteps; step++) captured.run(inputs);
  const auto time = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  std::printf("a replay takes the host %.1f us\n", time / kSteps);
  EXPECT_LE(operators() - before, 2 * kSteps) << "the copies of the input and of the loss";
}

TEST_F(CapturedSteps, OtherShapesAreWhatTheOptionsSay) {
  Training failing(device(), &adamw, 0), running(device(), &adamw, 0), capturing(device(), &adamw, 0),
      plain(device(), &adamw, 0);
  CaptureSettings settings;
  settings.warmup_steps = 1;
  CapturedStep fails = failing.captured(settings);
  settings.run_others = true;
  CapturedStep runs = running.captured(settings);
  settings.run_others = false;
  settings.max_captures = 2;
  CapturedStep captures = capturing.captured(settings);
  fails.run(batch(0));
  fails.run(batch(1));
  expect_error(Status::kShapeMismatch, "the inputs are Float [4, 5], and the captured step has Float [6, 5]",
               [&] { fails.run(batch(2, 4)); });
  expect_error(Status::kShapeMismatch, "expected the same structure", [&] {
    fails.run(tree::new_tuple({batch(2), batch(3)}));
  });
  fails.run(batch(2));
  for (int step = 0; step < 12; step++) {
    const int64_t rows = step % 3 == 2 ? 4 : 6;
    const float expected = number(plain.plain(batch(step, rows)));
    EXPECT_EQ(number(runs.run(batch(step, rows))), expected) << step;
    EXPECT_EQ(number(captures.run(batch(step, rows))), expected) << step;
  }
  expect_same_weights(running, plain);
  expect_same_weights(capturing, plain);
  EXPECT_EQ(captures.counts().captures, 2);
  expect_error(Status::kShapeMismatch, "max_captures than 2", [&] { captures.run(batch(0, 3)); });
}

TEST_F(CapturedSteps, FollowWhatTheHostChanges) {
  Training plain(device(), &adamw, 0), training(device(), &adamw, 0);
  CapturedStep captured = training.captured();
  const auto both = [&](const std::function<void(Training&)>& change) {
    change(plain);
    change(training);
    for (int step = 0; step < 3; step++)
      EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step)))) << step;
    expect_same_weights(training, plain);
  };
  both([](Training&) {});
  both([](Training&) {});
  EXPECT_EQ(captured.counts().captures, 1);
  both([](Training& of) { of.optimizer->set_setting(0, "weight_decay", 0.02); });
  EXPECT_EQ(captured.counts().captures, 2) << "the decay is a number of the recorded update";
  both([](Training& of) {  // weights that something else writes
    const at::NoGradGuard no_grad;
    of.model->parameters()[0].mul_(0.5);
  });
  EXPECT_EQ(captured.counts().captures, 2) << "a recording reads the weights where they are";
  both([](Training& of) {  // other tensors become the state
    const auto saved = tree::map_tensors(of.optimizer->state_dict(), [](const at::Tensor& t) { return t.clone(); });
    of.plain(batch(9));
    of.optimizer->load_state_dict(saved);
  });
  both([](Training& of) { of.optimizer->zero_grad(true); });
}

// Two steps of one accelerator, in turn: each keeps its recording.
TEST_F(CapturedSteps, LeaveEachOthersGradientsAlone) {
  Training training(device(), &adamw, 0);
  const nn::ModulePtr model = training.accelerator.preparation().prepare_model(make_model(0));
  const auto own = optim::make_optimizer(adamw());
  own->add_group(model->parameters(), 0.02, std::nullopt);
  const auto optimizer = training.accelerator.preparation().prepare_optimizer(own);
  CapturedStep captured = training.captured();
  CapturedStep other(training.accelerator.state(), training.accelerator.prepared(),
                     [&](const c10::IValue& inputs) -> c10::IValue {
                       optimizer->zero_grad(/*set_to_none=*/true);
                       const at::Tensor loss = model->call(inputs.toTensor()).square().mean();
                       training.accelerator.backward().run(loss);
                       optimizer->step();
                       return loss;
                     },
                     {});
  for (int step = 0; step < 10; step++) {
    captured.run(batch(step));
    other.run(batch(step));
  }
  EXPECT_EQ(captured.counts().captures, 1);
  EXPECT_EQ(other.counts().captures, 1);
  optimizer->set_lr(0, 0.01);
  optimizer->set_setting(0, "weight_decay", 0.5);
  for (int step = 0; step < 2; step++) {
    captured.run(batch(step));
    other.run(batch(step));
  }
  EXPECT_EQ(captured.counts().captures, 1) << "settings of another step's optimizer";
  EXPECT_EQ(other.counts().captures, 2);
}

// Counts of steps and rates of the host are written to the device before each step.
TEST_F(CapturedSteps, AllOptimizersFollowTheirCountsAndSchedules) {
  const std::pair<const char*, Rule> rules[] = {
      {"adagrad", &optim::adagrad_rule},
      {"rmsprop", &optim::rmsprop_rule},
      {"nadam", &optim::nadam_rule},
      {"radam", &optim::radam_rule},
      {"adamax", &optim::adamax_rule},
      {"lion", &optim::lion_rule},
      {"lamb", &optim::lamb_rule},
      {"adafactor", &optim::adafactor_rule},
      {"muon", &optim::muon_rule},
      {"schedule_free_sgd", &optim::schedule_free_sgd_rule},
      {"schedule_free_adamw", &optim::schedule_free_adamw_rule},
  };
  for (const auto& [name, rule] : rules) {
    SCOPED_TRACE(name);
    Training plain(device(), rule, 0), training(device(), rule, 0);
    CapturedStep captured = training.captured();
    for (int step = 0; step < 14; step++) {
      if (step >= 6) {
        plain.optimizer->set_lr(0, 0.02 / step);
        training.optimizer->set_lr(0, 0.02 / step);
      }
      EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step)))) << step;
    }
    EXPECT_EQ(captured.counts().captures, 1);
    expect_same_weights(training, plain);
    EXPECT_TRUE(tree::equal(training.optimizer->state_dict(), plain.optimizer->state_dict()));
    // Ordinary steps go on from there, and so do recorded ones behind a state that was loaded.
    EXPECT_EQ(number(training.plain(batch(14))), number(plain.plain(batch(14))));
    const auto saved =
        tree::map_tensors(training.optimizer->state_dict(), [](const at::Tensor& t) { return t.clone(); });
    tensor::synchronize(device());  // the former state may be the memory of another stream
    training.optimizer->load_state_dict(saved);
    EXPECT_EQ(number(captured.run(batch(15))), number(plain.plain(batch(15))));
    EXPECT_EQ(number(captured.run(batch(16))), number(plain.plain(batch(16))));
    expect_same_weights(training, plain);
  }
}

// A recording that fails has counted nothing.
TEST_F(CapturedSteps, FailedRecordingsCountNoSteps) {
  for (const Rule rule : {&optim::nadam_rule, &optim::schedule_free_adamw_rule}) {
    Training plain(device(), rule, 0), training(device(), rule, 0);
    CapturedStep captured = training.captured();
    for (int step = 0; step < 3; step++) EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step))));
    training.extra = [&](const at::Tensor& loss) {
      training.optimizer->step();
      static_cast<void>(loss.item<float>());
    };
    expect_error(Status::kUnsupported, "aten::_local_scalar_dense", [&] { captured.run(batch(3)); });
    training.extra = nullptr;
    for (int step = 3; step < 6; step++) EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step))));
    EXPECT_TRUE(tree::equal(training.optimizer->state_dict(), plain.optimizer->state_dict()));
  }
}

// After the first change the update reads the rate on the device, where it is a float32 number.
TEST_F(CapturedSteps, FollowASchedule) {
  Training plain(device(), &adamw, 0), training(device(), &adamw, 0);
  CapturedStep captured = training.captured();
  for (int step = 0; step < 12; step++) {
    if (step >= 5) {
      const auto rate = static_cast<double>(0.01F / static_cast<float>(step));
      plain.optimizer->set_lr(0, rate);
      training.optimizer->set_lr(0, rate);
      plain.optimizer->write_device_rates();
    }
    EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step)))) << step;
  }
  expect_same_weights(training, plain);
  EXPECT_EQ(captured.counts().captures, 2) << "one for numbers of the host, one for those of the device";
}

TEST_F(CapturedSteps, MemoryOfOthersIsNotTheirs) {
  Training plain(device(), &adamw, 0), training(device(), &adamw, 0);
  CapturedStep captured = training.captured();
  std::vector<at::Tensor> kept;
  for (int step = 0; step < 12; step++) {
    const float expected = number(plain.plain(batch(step)));
    const c10::IValue loss = captured.run(batch(step));
    kept.push_back(at::full({64, step + 1}, step, at::TensorOptions(device())));  // between the steps
    const auto saved = tree::map_tensors(training.optimizer->state_dict(), [](const at::Tensor& t) { return t.cpu(); });
    EXPECT_EQ(number(loss), expected);
    EXPECT_TRUE(tree::equal(saved, plain.optimizer->state_dict())) << "a save behind a step that may still run";
  }
  for (size_t i = 0; i < kept.size(); i++) EXPECT_TRUE(kept[i].eq(static_cast<double>(i)).all().item<bool>());
}

// Updates that overflow are skipped by the device; the scale, counts and schedules follow, and the host waits for none.
TEST_F(CapturedSteps, SkipUpdatesThatOverflow) {
  const auto inputs = [](int step) {
    at::Tensor values = batch(step).toTensor().clone();
    if (step % 5 == 4) values[0][0] = 1e30;
    return values;
  };
  for (const Rule rule : {&adamw, &optim::sgd_rule, &optim::lion_rule}) {
    Training plain(device(), rule, 0, Precision::kFp16), training(device(), rule, 0, Precision::kFp16);
    const auto schedule = [](Training& of) {
      return of.accelerator.preparation().prepare_scheduler(
          std::make_shared<optim::LrScheduler>(of.optimizer, optim::exponential_schedule(0.5)));
    };
    const auto of_plain = schedule(plain), of_training = schedule(training);
    CapturedStep captured = training.captured();
    for (int step = 0; step < 22; step++) {
      const bool is_scheduled = step >= 10 && step < 16;
      if (step >= 11 && rule != &optim::lion_rule) plain.optimizer->write_device_rates();
      plain.plain(inputs(step));
      captured.run(inputs(step));
      if (is_scheduled) {
        of_plain->step();
        of_training->step();
      }
      if (step % 3 == 0) {
        EXPECT_EQ(training.optimizer->step_was_skipped(), plain.optimizer->step_was_skipped()) << step;
      }
      if (step % 7 == 0) {
        EXPECT_EQ(training.scaler().scale(), plain.scaler().scale()) << step;
      }
    }
    EXPECT_EQ(training.optimizer->lr(0), plain.optimizer->lr(0));
    EXPECT_TRUE(tree::equal(training.scaler().state_dict(), plain.scaler().state_dict()));
    EXPECT_TRUE(tree::equal(training.optimizer->state_dict(), plain.optimizer->state_dict()));
    expect_same_weights(training, plain);
    EXPECT_LE(captured.counts().captures, 2) << "one for numbers of the host, one for a rate of the device";
    EXPECT_TRUE(training.optimizer->step_was_skipped() == plain.optimizer->step_was_skipped());
    // Ordinary steps go on from there, and a scale that is loaded is another one.
    training.scaler().load_state_dict(training.scaler().state_dict());
    plain.scaler().load_state_dict(plain.scaler().state_dict());
    for (int step = 25; step < 29; step++) {
      EXPECT_EQ(number(captured.run(inputs(step))), number(plain.plain(inputs(step))));
      EXPECT_EQ(number(training.plain(inputs(step))), number(plain.plain(inputs(step))));
    }
    expect_same_weights(training, plain);
  }
}

TEST_F(CapturedSteps, LossScalingWaitsForNothing) {
  NEEDS_SIMULATION("counts of waits");
  Training training(device(), &adamw, 0, Precision::kFp16);
  CapturedStep captured = training.captured();
  const c10::IValue inputs = batch(1).toTensor().to(device());
  for (int step = 0; step < 5; step++) captured.run(inputs);
  tensor::synchronize(device());
  const int64_t before = host_waits();
  for (int step = 0; step < 20; step++) captured.run(inputs);
  EXPECT_EQ(host_waits(), before);
  EXPECT_EQ(captured.counts().captures, 1);
}

// A recording that fails leaves the scale and the gradients as they were.
TEST_F(CapturedSteps, FailedRecordingsLeaveTheScale) {
  Training plain(device(), &adamw, 0, Precision::kFp16), training(device(), &adamw, 0, Precision::kFp16);
  CapturedStep captured = training.captured();
  for (int step = 0; step < 3; step++) EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step))));
  training.extra = [&](const at::Tensor& loss) {
    training.optimizer->step();
    static_cast<void>(loss.item<float>());
  };
  expect_error(Status::kUnsupported, "aten::_local_scalar_dense", [&] { captured.run(batch(3)); });
  training.extra = nullptr;
  EXPECT_EQ(number(training.plain(batch(3))), number(plain.plain(batch(3))));
  for (int step = 4; step < 8; step++) EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step))));
  expect_same_weights(training, plain);
  EXPECT_TRUE(tree::equal(training.scaler().state_dict(), plain.scaler().state_dict()));
}

TEST_F(CapturedSteps, RefuseWhatNoDeviceCanRecord) {
  const auto expect_refused = [](const char* part, Rule rule, const std::function<void(const at::Tensor&)>& extra) {
    SCOPED_TRACE(part);
    Training plain(device(), rule, 0), training(device(), rule, 0);
    CapturedStep captured = training.captured();
    for (int step = 0; step < 3; step++) EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step))));
    training.extra = extra;
    expect_error(Status::kUnsupported, part, [&] { captured.run(batch(3)); });
    training.extra = nullptr;
    // The step that failed has changed nothing.
    EXPECT_EQ(number(training.plain(batch(3))), number(plain.plain(batch(3))));
    expect_same_weights(training, plain);
    EXPECT_EQ(number(captured.run(batch(4))), number(plain.plain(batch(4)))) << "captured now";
  };
  expect_refused("cannot capture the operator aten::_local_scalar_dense", &adamw,
                 [](const at::Tensor& loss) { static_cast<void>(loss.item<float>()); });
  expect_refused("cannot capture the operator aten::nonzero", &adamw,
                 [](const at::Tensor& loss) { static_cast<void>(at::nonzero(loss)); });
  expect_refused("aten::_copy_from", &adamw, [](const at::Tensor& loss) { static_cast<void>(loss.cpu()); });
}

TEST_F(CapturedSteps, RefuseUpdatesThatTheHostCounts) {
  Training training(device(), &of_the_program, 0);
  CapturedStep captured = training.captured();
  for (int step = 0; step < 3; step++) captured.run(batch(step));
  expect_error(Status::kUnsupported, "the optimizer of a callback counts its steps on the host",
               [&] { captured.run(batch(3)); });
  Training scaled(device(), &optim::radam_rule, 0, Precision::kFp16);
  CapturedStep of_scaled = scaled.captured();
  for (int step = 0; step < 3; step++) of_scaled.run(batch(step));
  expect_error(Status::kUnsupported, "a step with loss scaling cannot be captured where the host has to know",
               [&] { of_scaled.run(batch(3)); });
}

TEST_F(CapturedSteps, RefuseStepsThatChangeTheirSettings) {
  Training training(device(), &adamw, 0);
  CapturedStep captured = training.captured();
  training.extra = [&](const at::Tensor&) { training.optimizer->set_lr(0, training.optimizer->lr(0) * 0.9); };
  for (int step = 0; step < 3; step++) captured.run(batch(step));
  expect_error(Status::kUnsupported, "schedulers to step after the captured step", [&] { captured.run(batch(3)); });
}

TEST_F(CapturedSteps, AnErrorOfTheProgramStaysWhatItIs) {
  Training training(device(), &adamw, 0);
  CapturedStep captured = training.captured();
  for (int step = 0; step < 3; step++) captured.run(batch(step));
  training.extra = [](const at::Tensor&) { fail(Status::kUser, "the program gives up"); };
  expect_error(Status::kUser, "the program gives up", [&] { captured.run(batch(3)); });
  training.extra = [&](const at::Tensor&) { captured.run(batch(3)); };
  expect_error(Status::kInvalidState, "a captured step runs itself", [&] { captured.run(batch(3)); });
}

TEST_F(CapturedSteps, OutOfMemoryIsAnErrorOfOneStep) {
  NEEDS_SIMULATION("allocations that fail");
  Training plain(device(), &adamw, 0), training(device(), &adamw, 0);
  CapturedStep captured = training.captured();
  for (int step = 0; step < 3; step++) EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step))));
  training.extra = [](const at::Tensor&) { simulation().fail_allocation(-1, 1); };
  expect_error(Status::kOutOfMemory, "has no memory for a captured step", [&] { captured.run(batch(3)); });
  training.extra = nullptr;
  simulation().restore();
  for (int step = 3; step < 6; step++) EXPECT_EQ(number(captured.run(batch(step))), number(plain.plain(batch(step))));
  expect_same_weights(training, plain);
}

// The ranks exchange gradients between two parts of the recording, so that ordinary steps of others fit in.
TEST_F(CapturedSteps, OfSeveralRanksExchangeGradients) {
  NEEDS_DEVICES(2);
  for (const bool as_bucket_view : {false, true})
    for (const Precision precision : {Precision::kNo, Precision::kFp16}) {
      SCOPED_TRACE(as_bucket_view);
      std::vector<at::Tensor> plain_weights[2], weights[2];
      for (const bool is_captured : {false, true})
        tests::on_mesh(
            {2, 1, 1},
            [&](const tests::AcceleratorPtr& accelerator) {
              const int rank = accelerator->state().process_index();
              PrepareModelSettings preparing;
              preparing.ddp.gradient_as_bucket_view = as_bucket_view;
              Training training(accelerator, &adamw, 0, preparing);
              CaptureSettings settings;
              settings.warmup_steps = rank + 1;  // one records while the other one takes ordinary steps
              CapturedStep captured = training.captured(settings);
              for (int step = 0; step < 10; step++) {
                const c10::IValue inputs = batch(2 * step + rank);
                if (is_captured)
                  captured.run(inputs);
                else
                  training.plain(inputs);
              }
              for (const at::Tensor& parameter : training.model->parameters())
                (is_captured ? weights : plain_weights)[rank].push_back(parameter.detach().cpu());
              if (is_captured) {
                const bool skips_first = precision == Precision::kFp16;  // which is no warm-up
                EXPECT_EQ(captured.counts().replays, (skips_first ? 8 : 9) - rank);
                training.plain(batch(100));  // an ordinary step goes on from there
              }
            },
            [precision](StateSettings& settings, int rank) {
              settings.cpu = false;
              settings.torch_device = device(rank).str();
              settings.mixed_precision = precision;
            });
      for (size_t i = 0; i < weights[0].size(); i++) {
        EXPECT_TRUE(at::equal(weights[0][i], plain_weights[0][i])) << i;
        EXPECT_TRUE(at::equal(weights[1][i], weights[0][i])) << i;
      }
    }
}

TEST_F(CapturedSteps, RefuseShardedModels) {
  NEEDS_DEVICES(2);
  tests::on_mesh(
      {1, 2, 1},
      [](const tests::AcceleratorPtr& accelerator) {
        PrepareModelSettings preparing;
        preparing.fsdp.enabled = true;
        Training training(accelerator, &adamw, 0, preparing);
        CaptureSettings settings;
        settings.warmup_steps = 1;
        CapturedStep captured = training.captured(settings);
        captured.run(batch(0));
        expect_error(Status::kUnsupported, "whose ranks exchange more than gradients", [&] { captured.run(batch(1)); });
      },
      [](StateSettings& settings, int rank) {
        settings.cpu = false;
        settings.torch_device = device(rank).str();
      });
}

TEST(CapturedStepsOnTheCpu, AreOrdinaryOnes) {
  Training plain(at::kCPU, &adamw, 0), training(at::kCPU, &adamw, 0);
  CapturedStep captured = training.captured();
  EXPECT_FALSE(captured.uses_graphs());
  for (int step = 0; step < 6; step++) {
    const c10::IValue loss = captured.run(batch(step));
    EXPECT_TRUE(at::equal(loss.toTensor(), plain.plain(batch(step)).toTensor()));
    EXPECT_FALSE(loss.toTensor().requires_grad());
  }
  EXPECT_EQ(captured.counts().steps, 6);
  EXPECT_EQ(captured.counts().captures, 0);
}

}  // namespace captured_step_test
}  // namespace accel::accelerator
