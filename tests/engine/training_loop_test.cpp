// SPDX-License-Identifier: Apache-2.0
// The training loop as the accelerator puts it together: accumulation, weights of losses, loss scale, precision.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "accel.h"
#include "accelerator/description.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_object.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "base/error.hpp"
#include "capi/calls/handles.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/dataloader_config.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/prepared_dataloader.hpp"
#include "data/sampler.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "optim/clip.hpp"
#include "optim/rules/rules.hpp"
#include "optim/schedules/lr_scheduler.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace training_loop_test {

using tests::AcceleratorPtr;
using tests::run_accelerators;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// x -> w * x; the weight starts at 0.
nn::ModulePtr one_weight() {
  auto model = std::make_shared<nn::CallbackModule>("OneWeight");
  model->add_parameter("w", at::zeros({1}));
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    return nn::find_tensor(module, "w") * inputs[0].toTensor();
  });
  return model;
}

std::shared_ptr<optim::Optimizer> sgd(const nn::ModulePtr& model, double lr = 1, double momentum = 0) {
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  options.lr = lr;
  options.momentum = momentum;
  accel_optimizer_t* made = nullptr;
  const auto module = std::make_unique<accel_module>(model);
  EXPECT_EQ(accel_optimizer_sgd(module.get(), &options, &made), ACCEL_OK) << accel_last_error();
  auto optimizer = made->optimizer;
  accel_optimizer_release(made);
  return optimizer;
}

std::shared_ptr<data::DataLoader> loader_of(at::Tensor tensor, int64_t batch_size) {
  data::LoaderOptions options;
  options.batch_size = batch_size;
  const int64_t rows = tensor.size(0);
  return std::make_shared<data::DataLoader>(
      std::make_shared<data::TensorDataset>(std::vector<at::Tensor>{std::move(tensor)}),
      std::make_shared<data::SequentialSampler>(rows), options);
}

at::Tensor forward(const nn::ModulePtr& model, double x) {
  return model->call(nn::Inputs{at::full({1}, x)}).toTensor().sum();
}

double weight_of(const nn::ModulePtr& model) { return nn::find_tensor(*unwrap_model(model), "w").item<double>(); }
double gradient_of(const nn::ModulePtr& model) {
  return nn::find_tensor(*unwrap_model(model), "w").grad().item<double>();
}

StateSettings accumulating(int64_t steps) {
  StateSettings options;
  options.gradient_accumulation_steps = steps;
  return options;
}

std::string refusal(Status status, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.message();
    return error.message();
  }
  ADD_FAILURE() << "expected an error";
  return {};
}

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

// Six micro-batches in groups of four: the weight in the end, for a gradient of 1.
double weight_after_a_short_group(bool true_divisor, bool twice, int ranks = 1, bool sync_each_batch = false) {
  std::vector<double> weights(static_cast<size_t>(ranks));
  StateSettings options = accumulating(4);
  options.true_divisor = true_divisor;
  options.sync_each_batch = sync_each_batch;
  run_accelerators(ranks, options, [&](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = one_weight();
    const auto plain = sgd(inner);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    const auto loader = accelerator->preparation().prepare_data_loader(*loader_of(at::ones({6 * ranks, 1}), 1), {});
    while (const auto batch = loader->next()) {
      const MicroBatch micro_batch(accelerator, {model});
      accelerator->backward().run(forward(model, twice ? 0.5 : 1));
      if (twice) accelerator->backward().run(forward(model, 0.5));
      optimizer->step();
      optimizer->zero_grad(/*set_to_none=*/true);
    }
    weights[static_cast<size_t>(accelerator->state().process_index())] = weight_of(model);
  });
  for (const double weight : weights) EXPECT_EQ(weight, weights[0]);
  return weights[0];
}

// Trap P7: Accelerate divides two micro-batches by four.
TEST(TrainingLoopDivisor, IsTheReferencesByDefault) {
  EXPECT_FLOAT_EQ(weight_after_a_short_group(false, false), -1.5);
  EXPECT_FLOAT_EQ(weight_after_a_short_group(false, true), -1.5);
}

TEST(TrainingLoopDivisor, CanBeTheLengthOfTheGroup) {
  EXPECT_FLOAT_EQ(weight_after_a_short_group(true, false), -2);
  EXPECT_FLOAT_EQ(weight_after_a_short_group(true, true), -2);  // two losses in a micro-batch
  EXPECT_FLOAT_EQ(weight_after_a_short_group(true, false, 2), -2);
  EXPECT_FLOAT_EQ(weight_after_a_short_group(true, false, 2, true), -2);
}

// Regression with rows that are padding: weight 0. All ranks have the same model.
struct Regression {
  at::Tensor x, y, counts;
  static Regression make() {
    const auto generator = at::detail::createCPUGenerator(5);
    Regression data;
    data.x = at::randn({24, 3}, generator, at::kFloat);
    data.y = at::randn({24}, generator, at::kFloat);
    data.counts = (at::rand({24}, generator, at::kFloat) < 0.6).to(at::kFloat);
    return data;
  }
};

nn::ModulePtr regression_model() {
  auto model = std::make_shared<nn::CallbackModule>("Regression");
  model->add_parameter("w", at::full({3}, 0.3));
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    return at::matmul(inputs[0].toTensor(), nn::find_tensor(module, "w"));
  });
  return model;
}

at::Tensor summed_loss(const nn::ModulePtr& model, const Regression& data, int64_t begin, int64_t end) {
  const at::Tensor output = model->call(nn::Inputs{data.x.slice(0, begin, end)}).toTensor();
  return ((output - data.y.slice(0, begin, end)).square() * data.counts.slice(0, begin, end)).sum();
}

int64_t items_of(const Regression& data, int64_t begin, int64_t end) {
  return data.counts.slice(0, begin, end).sum().item<int64_t>();
}

at::Tensor gradient_of_one_big_batch(const Regression& data) {
  const nn::ModulePtr model = regression_model();
  const at::Tensor loss = summed_loss(model, data, 0, 24) / static_cast<double>(items_of(data, 0, 24));
  loss.backward();
  return nn::find_tensor(*model, "w").grad();
}

// Each rank takes micro-batches of 1, 2, 3, ... rows, the second rank those that remain.
void expect_the_big_batch(int ranks, bool sync_each_batch, bool scaled) {
  const Regression data = Regression::make();
  const at::Tensor expected = gradient_of_one_big_batch(data);
  const std::vector<int64_t> cuts =
      ranks == 1 ? std::vector<int64_t>{0, 1, 9, 10, 24} : std::vector<int64_t>{0, 1, 9, 10, 12, 13, 13, 20, 24};
  StateSettings options = accumulating(4);
  options.sync_each_batch = sync_each_batch;
  run_accelerators(ranks, options, [&](const AcceleratorPtr& accelerator) {
    if (scaled) {
      GradScalerSettings settings;
      settings.enabled = true;
      accelerator->precision().set_grad_scaler(settings);
    }
    const nn::ModulePtr inner = regression_model();
    const auto plain = sgd(inner);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    for (int round = 0; round < 2; round++) {  // the second group starts from nothing
      const auto* cut = cuts.data() + 4 * accelerator->state().process_index();
      for (int i = 0; i < 4; i++, cut++) {
        const MicroBatch micro_batch(accelerator, {model});
        accelerator->backward().run_sum(summed_loss(model, data, cut[0], cut[1]), items_of(data, cut[0], cut[1]));
      }
      accelerator->clipping().unscale_gradients(nullptr);
      EXPECT_TRUE(at::allclose(nn::find_tensor(*inner, "w").grad(), expected, 1e-6, 1e-7))
          << nn::find_tensor(*inner, "w").grad() << expected;
      nn::find_tensor(*inner, "w").grad().zero_();  // a step that changes nothing, after which a new scale counts
      optimizer->step();
    }
  });
}

TEST(TrainingLoopSum, IsOneBigBatch) {
  for (const bool scaled : {false, true}) {
    expect_the_big_batch(1, false, scaled);
    expect_the_big_batch(2, false, scaled);
    expect_the_big_batch(2, true, scaled);
  }
}

TEST(TrainingLoopSum, OfNothingIsNothing) {
  run_accelerators(1, {}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = accelerator->preparation().prepare_model(one_weight());
    accelerator->backward().run_sum(forward(model, 0), 0);
    EXPECT_EQ(gradient_of(model), 0);
    EXPECT_SAYS(refusal(Status::kInvalidArgument, [&] { accelerator->backward().run_sum(forward(model, 1), -1); }),
                "count is -1");
  });
}

TEST(TrainingLoopSum, DoesNotMixWithMeans) {
  run_accelerators(1, accumulating(4), [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = accelerator->preparation().prepare_model(one_weight());
    const auto micro_batch = [&](bool sum) {
      const MicroBatch open(accelerator, {model});
      if (sum) return accelerator->backward().run_sum(forward(model, 1), 1);
      accelerator->backward().run(forward(model, 1));
    };
    micro_batch(true);
    EXPECT_SAYS(refusal(Status::kInvalidState, [&] { micro_batch(false); }), "accel_backward_sum() was called");
    micro_batch(true);
    micro_batch(true);
    micro_batch(false);  // the next group
    EXPECT_SAYS(refusal(Status::kInvalidState, [&] { micro_batch(true); }), "accel_backward() was called");
  });
}

// As the two halves of an adversarial network: each has its own groups, whatever the other does.
TEST(TrainingLoopModels, CountTheirOwnMicroBatches) {
  run_accelerators(1, accumulating(2), [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr first = accelerator->preparation().prepare_model(one_weight());
    const nn::ModulePtr second = accelerator->preparation().prepare_model(one_weight());
    const auto of_first = accelerator->preparation().prepare_optimizer(sgd(unwrap_model(first)));
    const auto of_second = accelerator->preparation().prepare_optimizer(sgd(unwrap_model(second)));
    for (int i = 0; i < 4; i++)
      for (const auto& [model, optimizer] : {std::pair(first, of_first), std::pair(second, of_second)}) {
        const MicroBatch micro_batch(accelerator, {model});
        EXPECT_EQ(accelerator->state().gradient_state()->sync_gradients(), i % 2 == 1);
        accelerator->backward().run(forward(model, 1));
        optimizer->step();
        optimizer->zero_grad(/*set_to_none=*/true);
      }
    EXPECT_FLOAT_EQ(weight_of(first), -2);
    EXPECT_FLOAT_EQ(weight_of(second), -2);
    { const MicroBatch micro_batch(accelerator, {first}); }
    EXPECT_SAYS(refusal(Status::kInvalidState,
                        [&] {
                          MicroBatch both(accelerator, {first, second});
                        }),
                "accumulated 5 micro-batches and another 4");
  });
}

int64_t count_operations(comm::Communicator& communicator, const char* name) {
  int64_t count = 0;
  const c10::IValue record = tree::from_json(communicator.flight_record()->to_json(), "the record");
  const c10::IValue operations = record.toGenericDict().at("operations");
  for (const c10::IValue& operation : operations.toListRef())
    if (operation.toGenericDict().at("operation").toStringRef() == name) count++;
  return count;
}

TEST(TrainingLoopExchange, HappensOnceInAGroup) {
  run_accelerators(2, accumulating(4), [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = accelerator->preparation().prepare_model(one_weight());
    comm::Communicator& communicator = *accelerator->state().communicator();
    for (const int64_t expected : {1, 1}) {
      const int64_t before = count_operations(communicator, "all_reduce");
      for (int i = 0; i < 4; i++) {
        const MicroBatch micro_batch(accelerator, {model});
        accelerator->backward().run(forward(model, 1));
      }
      EXPECT_EQ(count_operations(communicator, "all_reduce") - before, expected);
    }
  });
}

// Forwards without exchange, and then one backward that exchanges what all of them left.
TEST(TrainingLoopExchange, CanBeTriggeredInBackward) {
  run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = accelerator->preparation().prepare_model(one_weight());
    const int rank = accelerator->state().process_index();
    at::Tensor first, second;
    {
      const NoSyncGuard no_sync({model});
      first = forward(model, rank + 1);
      second = forward(model, 10 * (rank + 1));
      accelerator->backward().run(first);
    }
    EXPECT_FLOAT_EQ(gradient_of(model), rank + 1);
    {
      const TriggerSyncGuard trigger(model);
      accelerator->backward().run(second);
    }
    EXPECT_FLOAT_EQ(gradient_of(model), 16.5);
    accelerator->backward().run(forward(model, 0));  // the next exchange works as ever
    EXPECT_FLOAT_EQ(gradient_of(model), 16.5);
  });
}

// Trap P17: Accelerate refuses a frozen model on several processes of the CPU.
TEST(TrainingLoopExchange, LeavesFrozenModelsAlone) {
  run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr frozen = one_weight();
    nn::find_tensor(*frozen, "w").set_requires_grad(false);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(frozen);
    EXPECT_EQ(parallel_model_of(model)->exchange(), nullptr);
    EXPECT_SAYS(refusal(Status::kInvalidState, [&] { accelerator->backward().run(forward(model, 1)); }),
                "no gradient history");
  });
}

struct Scaled {
  AcceleratorPtr accelerator;
  nn::ModulePtr model;
  std::shared_ptr<optim::Optimizer> optimizer;
  std::shared_ptr<optim::Scheduler> scheduler;
};

void run_scaled(const std::function<void(const Scaled&)>& body) {
  run_accelerators(1, accumulating(2), [&](const AcceleratorPtr& accelerator) {
    GradScalerSettings settings;
    settings.enabled = true;
    settings.init_scale = 1024;
    accelerator->precision().set_grad_scaler(settings);
    const nn::ModulePtr inner = one_weight();
    const auto plain = sgd(inner);
    Scaled loop{accelerator, accelerator->preparation().prepare_model(inner),
                accelerator->preparation().prepare_optimizer(plain), nullptr};
    loop.scheduler = accelerator->preparation().prepare_scheduler(std::make_shared<optim::LrScheduler>(
        plain, optim::factor_schedule([](int64_t step) { return 1.0 / static_cast<double>(step + 1); })));
    body(loop);
  });
}

void micro_batches(const Scaled& loop, const std::vector<float>& inputs) {
  for (const float x : inputs) {
    const MicroBatch micro_batch(loop.accelerator, {loop.model});
    loop.accelerator->backward().run(forward(loop.model, x));
    if (loop.accelerator->state().gradient_state()->sync_gradients()) continue;
    EXPECT_FALSE(loop.optimizer->step());
  }
}

TEST(TrainingLoopScale, LeavesOutStepsThatOverflow) {
  run_scaled([](const Scaled& loop) {
    micro_batches(loop, {1, 1});
    EXPECT_EQ(gradient_of(loop.model), 1024);
    EXPECT_TRUE(loop.optimizer->step());
    loop.scheduler->step();
    loop.optimizer->zero_grad(/*set_to_none=*/true);
    EXPECT_FLOAT_EQ(weight_of(loop.model), -1);
    EXPECT_EQ(loop.accelerator->prepared().grad_scaler->scale(), 1024);

    micro_batches(loop, {1, kInfinity});
    EXPECT_FALSE(loop.optimizer->step());
    EXPECT_TRUE(loop.optimizer->step_was_skipped());
    loop.scheduler->step();  // D8: a step that was left out does not move the learning rate
    loop.optimizer->zero_grad(/*set_to_none=*/true);
    EXPECT_FLOAT_EQ(weight_of(loop.model), -1);
    EXPECT_EQ(loop.accelerator->prepared().grad_scaler->scale(), 512);
    EXPECT_FLOAT_EQ(loop.scheduler->last_lr(0), 0.5);

    micro_batches(loop, {1, 1});
    EXPECT_EQ(gradient_of(loop.model), 512);
    EXPECT_TRUE(loop.optimizer->step());
    EXPECT_FLOAT_EQ(weight_of(loop.model), -1.5);
    EXPECT_SAYS(refusal(Status::kInvalidState, [&] { loop.optimizer->step(); }), "has stepped since the latest");
    EXPECT_FLOAT_EQ(weight_of(loop.model), -1.5);
  });
}

TEST(TrainingLoopScale, IsTakenOutBeforeClipping) {
  run_scaled([](const Scaled& loop) {
    micro_batches(loop, {1, 1});
    loop.accelerator->clipping().unscale_gradients_of(*loop.model);
    EXPECT_FLOAT_EQ(gradient_of(loop.model), 1);
    loop.accelerator->clipping().unscale_gradients(loop.optimizer.get());
    EXPECT_FLOAT_EQ(gradient_of(loop.model), 1);
    EXPECT_TRUE(loop.optimizer->step());
    EXPECT_FLOAT_EQ(weight_of(loop.model), -1);

    const auto foreign = sgd(one_weight());
    EXPECT_SAYS(
        refusal(Status::kInvalidArgument, [&] { loop.accelerator->clipping().unscale_gradients(foreign.get()); }),
        "optimizer is not prepared by this state");
    const nn::ModulePtr other = loop.accelerator->preparation().prepare_model(one_weight());
    loop.accelerator->backward().run(forward(other, 1));
    EXPECT_SAYS(refusal(Status::kInvalidState, [&] { loop.accelerator->clipping().unscale_gradients_of(*other); }),
                "belong to no prepared optimizer");
  });
}

TEST(TrainingLoopScale, IsSetBeforeAnythingIsPrepared) {
  run_accelerators(1, {}, [](const AcceleratorPtr& accelerator) {
    EXPECT_EQ(accelerator->prepared().grad_scaler, nullptr);  // in float32 and bfloat16 gradients do not vanish
    accelerator->preparation().prepare_model(one_weight());
    EXPECT_SAYS(refusal(Status::kInvalidState, [&] { accelerator->precision().set_grad_scaler({}); }), "after a model");
    EXPECT_SAYS(refusal(Status::kInvalidState, [&] { accelerator->precision().set_autocast({}); }),
                "autocast cannot change");
    accelerator->free_memory();
    accelerator->precision().set_grad_scaler({});
  });
}

at::ScalarType output_dtype(const AcceleratorPtr& accelerator) {
  const nn::ModulePtr model = accelerator->preparation().prepare_model(regression_model());
  return model->call(nn::Inputs{at::ones({2, 3})}).toTensor().scalar_type();
}

TEST(TrainingLoopPrecision, OfOutputsIsFloat32UnlessKept) {
  for (const bool keep : {false, true}) {
    StateSettings options;
    options.mixed_precision = Precision::kBf16;
    options.keep_output_dtype = keep;
    run_accelerators(1, options, [&](const AcceleratorPtr& accelerator) {
      EXPECT_EQ(output_dtype(accelerator), keep ? at::kBFloat16 : at::kFloat);
      accelerator->free_memory();
      accelerator->precision().set_autocast({/*enabled=*/false, /*cache_enabled=*/true});
      EXPECT_EQ(output_dtype(accelerator), at::kFloat);
    });
  }
}

using Between = std::function<void(const nn::ModulePtr& model, at::Tensor& weight)>;

// The casts of a weight that forwards multiply by in bf16; they are held, so that memory tells them apart.
thread_local std::vector<at::Tensor> seen_casts;

std::unique_ptr<at::ObserverContext> see_cast(const at::RecordFunction& function) {
  if (std::string_view(function.name()) != "aten::mm") return nullptr;
  const at::Tensor factor = function.inputs()[1].toTensor();
  if (factor.size(0) == 64 && factor.scalar_type() == at::kBFloat16) seen_casts.push_back(factor.detach());
  return nullptr;
}

size_t num_seen_casts() {
  std::set<const void*> addresses;
  for (const at::Tensor& cast : seen_casts) addresses.insert(cast.const_data_ptr());
  return addresses.size();
}

nn::ModulePtr one_product() {
  auto model = std::make_shared<nn::CallbackModule>("Product");
  model->add_parameter("w", at::linspace(-1, 1, 64 * 8).reshape({64, 8}).clone());
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    return at::mm(inputs[0].toTensor(), nn::find_tensor(module, "w"));
  });
  return model;
}

struct TrainedGroup {
  at::Tensor gradient;
  size_t casts;  // of the weight

  bool operator==(const TrainedGroup& other) const { return gradient.equal(other.gradient); }
};

void do_nothing(const nn::ModulePtr&, at::Tensor&) {}

// A group of three micro-batches in bf16; `between` runs behind each.
TrainedGroup train_a_group(bool caches, const Between& between = do_nothing) {
  TrainedGroup result;
  StateSettings options = accumulating(3);
  options.mixed_precision = Precision::kBf16;
  run_accelerators(1, options, [&](const AcceleratorPtr& accelerator) {
    accelerator->precision().set_autocast({/*enabled=*/true, caches});
    const nn::ModulePtr inner = one_product();
    at::Tensor weight = nn::find_tensor(*inner, "w");
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const at::CallbackHandle observer =
        at::addThreadLocalCallback(at::RecordFunctionCallback(&see_cast).needsInputs(true));
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      const MicroBatch scope(accelerator, {model});
      const at::Tensor input = at::linspace(micro_batch, 2, 4 * 64).reshape({4, 64});
      accelerator->backward().run(model->call(nn::Inputs{input}).toTensor().pow(2).mean());
      between(model, weight);
    }
    at::removeCallback(observer);
    result = {weight.grad().clone(), num_seen_casts()};
    seen_casts.clear();
  });
  return result;
}

// The weight after three steps on two ranks; each step's cast has its memory from the step before.
at::Tensor train_steps(bool caches) {
  at::Tensor result;
  StateSettings options;
  options.mixed_precision = Precision::kBf16;
  run_accelerators(2, options, [&](const AcceleratorPtr& accelerator) {
    accelerator->precision().set_autocast({/*enabled=*/true, caches});
    const nn::ModulePtr inner = one_product();
    const auto plain = sgd(inner, 0.01, 0.9);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    const void* cast = nullptr;
    for (int step = 0; step < 3; ++step) {
      const at::CallbackHandle observer =
          at::addThreadLocalCallback(at::RecordFunctionCallback(&see_cast).needsInputs(true));
      const at::Tensor input = at::linspace(accelerator->state().process_index(), 2, 4 * 64).reshape({4, 64});
      const at::Tensor loss = model->call(nn::Inputs{input}).toTensor().pow(2).mean();
      at::removeCallback(observer);
      EXPECT_EQ(num_seen_casts(), 1U);
      EXPECT_TRUE(!caches || step == 0 || seen_casts[0].const_data_ptr() == cast);
      cast = seen_casts[0].const_data_ptr();
      seen_casts.clear();
      accelerator->backward().run(loss);
      optimizer->step();
      optimizer->zero_grad(/*set_to_none=*/true);
    }
    if (accelerator->state().process_index() == 0) result = nn::find_tensor(*inner, "w").detach().clone();
  });
  return result;
}

TEST(TrainingLoopPrecision, WeightsAreCastOnceForAGroupOfMicroBatches) {
  const TrainedGroup each_time = train_a_group(false);
  EXPECT_EQ(each_time.casts, 3);
  const TrainedGroup once = train_a_group(true);
  EXPECT_EQ(once.casts, 1);
  EXPECT_TRUE(once == each_time);
}

TEST(TrainingLoopPrecision, TheOptimizerWritesTheCastsOfWeights) {
  EXPECT_TRUE(train_steps(true).equal(train_steps(false)));
}

TEST(TrainingLoopPrecision, AutocastWeightCacheDoNotCutWeightsOffAfterAForwardWithoutGradients) {
  const Between evaluate = [](const nn::ModulePtr& model, at::Tensor&) {
    const at::NoGradGuard no_grad;
    model->call(nn::Inputs{at::ones({4, 64})});
  };
  EXPECT_TRUE(train_a_group(true, evaluate) == train_a_group(false, evaluate));
}

TEST(TrainingLoopPrecision, AutocastWeightCacheGoWhenAWeightChanges) {
  const Between change = [](const nn::ModulePtr&, at::Tensor& weight) {
    const at::NoGradGuard no_grad;
    weight.mul_(0.5);
  };
  EXPECT_TRUE(train_a_group(true, change) == train_a_group(false, change));
}

TEST(TrainingLoopPrecision, StaysWithAnUnwrappedModelThatKeepsIt) {
  StateSettings options;
  options.mixed_precision = Precision::kBf16;
  options.keep_output_dtype = true;
  run_accelerators(2, options, [&](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = regression_model();
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const nn::Inputs inputs{at::ones({2, 3})};
    EXPECT_EQ(unwrap_model(model), inner);
    EXPECT_EQ(unwrap_model(model)->call(inputs).toTensor().scalar_type(), at::kFloat);
    const nn::ModulePtr kept = unwrap_keeping_precision(model);
    EXPECT_EQ(kept->call(inputs).toTensor().scalar_type(), at::kBFloat16);
    EXPECT_EQ(parallel_model_of(kept)->exchange(), nullptr);
    EXPECT_EQ(unwrap_model(kept), inner);
    EXPECT_EQ(unwrap_keeping_precision(inner), inner);
  });
}

TEST(TrainingLoopPrecision, UnwrappingTakesPreparedPartsOutAsWell) {
  StateSettings options;
  options.mixed_precision = Precision::kBf16;
  run_accelerators(2, options, [&](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr first = regression_model(), second = regression_model();
    const auto block = std::make_shared<nn::CallbackModule>("Block"),
               whole = std::make_shared<nn::CallbackModule>("Whole");
    block->add_child("second", accelerator->preparation().prepare_model(second));
    whole->add_child("first", accelerator->preparation().prepare_model(first));
    whole->add_child("block", block);
    unwrap_parts(*whole, unwrap_keeping_precision);
    const nn::ModulePtr kept = whole->children()[0].second;
    EXPECT_NE(kept, first);
    EXPECT_EQ(unwrap_model(kept), first);
    EXPECT_EQ(parallel_model_of(kept)->exchange(), nullptr);
    unwrap_parts(*whole, unwrap_model);
    unwrap_parts(*whole, unwrap_model);  // the second time nothing is left to be done
    EXPECT_EQ(whole->children()[0].second, first);
    EXPECT_EQ(whole->children()[1].second, block);
    EXPECT_EQ(block->children()[0].second, second);
  });
}

TEST(TrainingLoopPrepare, IsAllOrNothing) {
  run_accelerators(1, {}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = one_weight();
    const auto loader = loader_of(at::ones({4, 1}), 2);
    std::vector<PreparedObject> objects(3);
    objects[0].model = inner;
    objects[1].loader = loader;
    objects[2].loader = std::make_shared<data::PreparedDataLoader>(*loader, data::ShardOptions{});
    refusal(Status::kInvalidState, [&] { accelerator->preparation().prepare(objects); });
    EXPECT_TRUE(accelerator->prepared().loaders.empty());
    accelerator->precision().set_autocast({});  // nothing is prepared
    objects.pop_back();
    EXPECT_EQ(accelerator->preparation().prepare(objects).size(), 2u);
    EXPECT_EQ(accelerator->prepared().loaders.size(), 1u);
  });
}

// Two layers, whose gradients are matrices.
nn::ModulePtr two_layers() {
  auto model = std::make_shared<nn::CallbackModule>("TwoLayers");
  model->add_parameter("first", at::linspace(-0.5, 0.5, 54).view({9, 6}));
  model->add_parameter("bias", at::linspace(-0.3, 0.2, 9));
  model->add_parameter("second", at::linspace(0.4, -0.4, 63).view({7, 9}));
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor hidden =
        at::linear(inputs[0].toTensor(), nn::find_tensor(module, "first"), nn::find_tensor(module, "bias"));
    return at::linear(at::tanh(hidden), nn::find_tensor(module, "second"));
  });
  return model;
}

// Another one of each rank in each step.
at::Tensor loss_of(const nn::ModulePtr& model, int rank, int step) {
  const at::Tensor input = at::arange(12, at::kFloat).mul(0.7 + rank + 0.3 * step).sin().view({2, 6});
  return model->call(nn::Inputs{input}).toTensor().square().mean();
}

at::Tensor all_weights(const nn::ModulePtr& model) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& parameter : model->parameters()) flat.push_back(parameter.detach().flatten());
  return at::cat(flat);
}

// Steps [0, save_at), a checkpoint, and the rest: once in one go, once in new objects that load it.
void expect_hook_goes_on_bit_for_bit(int ranks, const DdpSettings& options, int save_at) {
  constexpr int kSteps = 8;
  const checkpoint::tests::Folder folder;
  std::vector<at::Tensor> expected(ranks);
  for (const bool resumed : {false, true})
    run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
      const int rank = accelerator->state().process_index();
      const nn::ModulePtr inner = two_layers();
      const auto plain = sgd(inner, 0.5, 0.9);
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, tests::prepared_by(options));
      const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
      if (resumed) accelerator->checkpoints().load_state(folder / "state");
      for (int step = resumed ? save_at : 0; step < kSteps; step++) {
        if (!resumed && step == save_at) accelerator->checkpoints().save_state(folder / "state");
        accelerator->backward().run(loss_of(model, rank, step));
        optimizer->step();
        optimizer->zero_grad(/*set_to_none=*/true);
      }
      if (!resumed) expected[rank] = all_weights(inner).clone();
      EXPECT_TRUE(at::equal(all_weights(inner), expected[rank])) << "saved at step " << save_at;
    });
}

TEST(TrainingLoopCheckpoint, HoldsWhatPowerSgdRemembers) {
  for (const int ranks : {2, 3})
    for (const DdpCommHook hook : {DdpCommHook::kPowerSgd, DdpCommHook::kBatchedPowerSgd})
      for (const double bucket_cap_mb : {25.0, 0.0001})
        for (const bool warm_start : {true, false}) {
          DdpSettings options;
          options.bucket_cap_mb = bucket_cap_mb;
          options.comm_hook = hook;
          options.comm_wrapper = warm_start ? DdpCommHook::kNo : DdpCommHook::kBf16;
          options.comm_state_option.start_power_sgd_iter = 3;
          options.comm_state_option.min_compression_rate = 0.5;
          options.comm_state_option.warm_start = warm_start;
          for (const int save_at : {2, 5}) expect_hook_goes_on_bit_for_bit(ranks, options, save_at);
        }
}

TEST(TrainingLoopLomo, ExchangesEachGradient) {
  for (const int ranks : {1, 2, 3})
    for (const double limit : {0.0, 0.05}) {
      std::vector<at::Tensor> weights(2 * ranks);
      for (const bool lomo : {false, true})
        run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
          const int rank = accelerator->state().process_index();
          const nn::ModulePtr inner = two_layers();
          const optim::GivenSettings clip{{"clip_grad_norm", limit}};
          const auto plain = lomo ? optim::make_optimizer(optim::lomo_rule(), limit > 0 ? clip : optim::GivenSettings{})
                                  : optim::make_optimizer(optim::sgd_rule(), {{"lr", 0.2}});
          plain->add_group(inner->parameters(), std::nullopt, std::nullopt);
          const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
          const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
          for (int step = 0; step < 5; step++) {
            const at::Tensor loss = loss_of(model, rank, step);
            if (lomo) {
              accelerator->backward().run_lomo(loss, 0.2);
              for (const at::Tensor& parameter : inner->parameters()) EXPECT_FALSE(parameter.grad().defined());
            } else {
              accelerator->backward().run(loss);
              if (limit > 0) optim::clip_gradients_by_norm(inner->parameters(), limit);
            }
            optimizer->step();
            optimizer->zero_grad(/*set_to_none=*/true);
          }
          weights[2 * rank + (lomo ? 1 : 0)] = all_weights(inner).clone();
        });
      for (int rank = 0; rank < ranks; rank++) {
        EXPECT_TRUE(at::allclose(weights[2 * rank], weights[2 * rank + 1], 1e-6, 1e-7)) << rank << " of " << ranks;
        EXPECT_TRUE(at::equal(weights[2 * rank + 1], weights[1]));
      }
    }
}

TEST(TrainingLoopClosure, IsCalledWhenGradientsAreComplete) {
  run_accelerators(1, accumulating(2), [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = one_weight();
    const auto plain = sgd(inner);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    int calls = 0;
    for (int i = 0; i < 4; i++) {
      const MicroBatch scope(accelerator, {model});
      const bool stepped = optimizer->step_by([&] {
        calls++;
        accelerator->backward().run(forward(model, 1));
      });
      EXPECT_EQ(stepped, i % 2 == 1);
      EXPECT_EQ(calls, (i + 1) / 2) << "as in Accelerate";
    }
  });
}

TEST(TrainingLoopClosure, IsRefusedUnderALossScale) {
  StateSettings options;
  run_accelerators(1, options, [](const AcceleratorPtr& accelerator) {
    GradScalerSettings scaling;
    scaling.enabled = true;
    accelerator->precision().set_grad_scaler(scaling);
    const auto optimizer = accelerator->preparation().prepare_optimizer(sgd(one_weight()));
    EXPECT_SAYS(refusal(Status::kUnsupported, [&] { optimizer->step_by([] { FAIL() << "was called"; }); }),
                "loss scale");
  });
}

TEST(TrainingLoopLomo, RefusesAPartOfAModelInSeveralProcesses) {
  run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = two_layers();
    const auto plain = optim::make_optimizer(optim::lomo_rule());
    plain->add_group({inner->parameters()[0]}, std::nullopt, std::nullopt);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    accelerator->preparation().prepare_optimizer(plain);
    const at::Tensor loss = loss_of(model, accelerator->state().process_index(), 0);
    EXPECT_NE(refusal(Status::kUnsupported, [&] { accelerator->backward().run_lomo(loss, 0.1); }).find("1 of the 3"),
              std::string::npos);
    accelerator->backward().run(loss);  // its buckets still wait for this
  });
}

// x -> w * x, and the mean of all inputs so far.
nn::ModulePtr weight_and_mean() {
  auto model = std::make_shared<nn::CallbackModule>("WeightAndMean");
  model->add_parameter("w", at::ones({1}));
  model->add_buffer("mean", at::zeros({1}));
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor mean = nn::find_tensor(module, "mean");
    mean.mul_(0.5).add_(inputs[0].toTensor(), 0.5);
    return nn::find_tensor(module, "w") * mean;
  });
  return model;
}

// Regression: checkpoints had the buffers of rank 0 only.
TEST(TrainingLoopCheckpoint, HoldsTheBuffersOfEachRank) {
  const checkpoint::tests::Folder folder;
  DdpSettings options;
  options.broadcast_buffers = false;
  const auto with_model = [&](int ranks, const std::function<void(Accelerator&, nn::ModulePtr, nn::ModulePtr)>& body) {
    run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
      const nn::ModulePtr inner = weight_and_mean();
      body(*accelerator, inner, accelerator->preparation().prepare_model(inner, tests::prepared_by(options)));
    });
  };
  const auto mean_of = [](const nn::ModulePtr& model) { return nn::find_tensor(*model, "mean").item<float>(); };
  with_model(2, [&](Accelerator& accelerator, const nn::ModulePtr& inner, const nn::ModulePtr& model) {
    forward(model, 4.0F + 4.0F * static_cast<float>(accelerator.state().process_index()));
    accelerator.checkpoints().save_state(folder / "state");
    forward(model, 100);
    accelerator.checkpoints().load_state(folder / "state");
    EXPECT_EQ(mean_of(inner), accelerator.state().process_index() == 0 ? 2 : 4);
  });
  for (const int ranks : {1, 3})  // ranks that did not save have rank 0's
    with_model(ranks, [&](Accelerator& accelerator, const nn::ModulePtr& inner, const nn::ModulePtr&) {
      accelerator.checkpoints().load_state(folder / "state");
      EXPECT_EQ(mean_of(inner), 2);
    });
}

TEST(TrainingLoopCheckpoint, RegisteredObjectsOutliveThePreparedOnes) {
  const checkpoint::tests::Folder folder;
  run_accelerators(1, {}, [&](const AcceleratorPtr& accelerator) {
    int64_t kept = 1;
    accelerator->checkpoints().register_for_checkpointing(
        {"kept", [&] { return c10::IValue(kept); }, [&](const c10::IValue& saved) { kept = saved.toInt(); }});
    accelerator->preparation().prepare_model(one_weight());
    accelerator->free_memory();
    accelerator->checkpoints().save_state(folder / "state");
    kept = 2;
    accelerator->checkpoints().load_state(folder / "state");
    EXPECT_EQ(kept, 1);
  });
}

// In the middle of a group of counted losses, after an overflow.
TEST(TrainingLoopCheckpoint, HoldsTheScaleAndTheOpenGroup) {
  const checkpoint::tests::Folder folder;
  double expected = 0;
  for (const bool resumed : {false, true})
    run_scaled([&](const Scaled& loop) {
      const auto sum = [&](float x, int64_t count) {
        const MicroBatch micro_batch(loop.accelerator, {loop.model});
        loop.accelerator->backward().run_sum(forward(loop.model, x), count);
      };
      if (resumed) {
        loop.accelerator->checkpoints().load_state(folder / "state");
      } else {
        micro_batches(loop, {1, kInfinity});
        EXPECT_FALSE(loop.optimizer->step());
        loop.optimizer->zero_grad(/*set_to_none=*/true);
        sum(4, 3);
        loop.accelerator->checkpoints().save_state(folder / "state");
      }
      EXPECT_EQ(loop.accelerator->prepared().grad_scaler->scale(), 512);
      sum(6, 2);
      EXPECT_TRUE(loop.optimizer->step());
      if (!resumed) expected = weight_of(loop.model);
      EXPECT_EQ(weight_of(loop.model), expected);
    });
  EXPECT_FLOAT_EQ(expected, -2);
}

TEST(TrainingLoopRandom, StatesAreSentWhenAnEpochBegins) {
  StateSettings options;
  options.rng_types = "torch";
  run_accelerators(2, options, [](const AcceleratorPtr& accelerator) {
    const auto loader = accelerator->preparation().prepare_data_loader(*loader_of(at::ones({4, 1}), 1), {});
    comm::Communicator& communicator = *accelerator->state().communicator();
    const int64_t before = count_operations(communicator, "broadcast");
    for (int epoch = 0; epoch < 2; epoch++)
      while (loader->next()) continue;
    EXPECT_EQ(count_operations(communicator, "broadcast") - before, 2);
  });
}

TEST(TrainingLoopDescription, SaysWhatIsActive) {
  StateSettings options = accumulating(4);
  options.mixed_precision = Precision::kBf16;
  run_accelerators(2, options, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = regression_model();
    const auto plain = sgd(inner, 0.25);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    accelerator->preparation().prepare_optimizer(plain);
    const std::string text = accelerator::describe(*accelerator);
    for (const char* part :
         {"device = cpu\n", "processes = 2, this is ", "over ucx", "precision = bf16, autocast to bfloat16",
          "loss scale = none", "accumulation = 4 micro-batches a step",
          "model 0 = Regression: 3 parameters of float32 on cpu, 3 trainable; autocast to bfloat16, outputs in "
          "float32; "
          "gradients averaged over the ranks; micro-batch 0",
          "optimizer 0 = 1 parameters at learning rate 0.25"})
      EXPECT_SAYS(text, part);
  });
}

}  // namespace training_loop_test
}  // namespace accel::accelerator
