// SPDX-License-Identifier: Apache-2.0
// Memory of an application that is registered, and one call a step.
#include "accelerator/parameters/registered_parameters.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>

#include "accelerator/parameters/prepared_parameters.hpp"
#include "accelerator/parameters/step_parameters.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "base/error.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/choices/auto_wrap_policy.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/parameters/parameters_step.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "config/generated/settings/state/state.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"

namespace accel::accelerator {
namespace registered_parameters_test {

using tests::AcceleratorPtr;

FsdpSettings sharded(ShardingStrategy strategy = ShardingStrategy::kFullShard, int64_t min_num_params = 0) {
  FsdpSettings settings;
  settings.enabled = true;
  settings.sharding_strategy = strategy;
  if (min_num_params == 0) return settings;
  settings.auto_wrap_policy = AutoWrapPolicy::kSizeBasedWrap;
  settings.min_num_params = min_num_params;
  return settings;
}

// Rows that no number of ranks divides, and fewer than there are ranks.
nn::NamedTensors new_tensors(double first = 0) {
  nn::NamedTensors tensors;
  tensors.emplace_back("layers.1.weight", at::linspace(-1, 1, 35).view({7, 5}) + first);
  tensors.emplace_back("bias", at::linspace(0, 1, 6) + first);
  tensors.emplace_back("layers.0.weight", at::linspace(1, -1, 24).view({6, 4}) + first);
  tensors.emplace_back("layers.0.one", at::linspace(1, 1, 1) + first);
  return tensors;
}

struct Program {
  AcceleratorPtr accelerator;
  nn::NamedTensors tensors;
  std::shared_ptr<PreparedParameters> parameters;
  std::shared_ptr<optim::Optimizer> optimizer;

  nn::NamedTensors gradients(int step) const {
    const int rank = accelerator->state().process_index();
    nn::NamedTensors gradients;
    for (const auto& [name, tensor] : tensors)
      gradients.emplace_back(name, tensor * 0.25 + (1 + rank) * (step % 3 - 0.5));
    return gradients;
  }
  std::optional<double> step(int number, const ParametersStepSettings& settings = {}, bool wants_norm = false) const {
    return accelerator::step_parameters(*accelerator, *parameters, *optimizer, gradients(number), settings, wants_norm);
  }
  std::map<std::string, at::Tensor> values() const {
    std::map<std::string, at::Tensor> values;
    for (const auto& [name, tensor] : tensors) values[name] = tensor.clone();
    return values;
  }
};

Program new_program(const AcceleratorPtr& accelerator, const FsdpSettings& fsdp = {}, double first = 0) {
  Program program{accelerator, new_tensors(first), nullptr, nullptr};
  program.parameters = accelerator->preparation().register_parameters([&] { return program.tensors; }, 0.0001, fsdp);
  const auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.02}});
  plain->add_group(program.parameters->model()->module()->parameters(), std::nullopt, std::nullopt);
  program.optimizer = accelerator->preparation().prepare_optimizer(plain);
  return program;
}

void expect_same(const std::map<std::string, at::Tensor>& one, const std::map<std::string, at::Tensor>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, tensor] : one) EXPECT_TRUE(at::equal(tensor, other.at(name))) << name;
}

// As accel_backward() does with a model whose loss has these gradients: the sum of each parameter times a constant.
std::map<std::string, at::Tensor> train_by_autograd(const AcceleratorPtr& accelerator, int steps) {
  auto module = std::make_shared<nn::CallbackModule>("Net");
  nn::NamedTensors tensors = new_tensors();
  std::vector<at::Tensor> parameters;
  for (auto& [name, tensor] : tensors) {
    std::string flat = name;
    std::replace(flat.begin(), flat.end(), '.', '_');
    parameters.push_back(module->parameter(module->add_parameter(flat, tensor)));
  }
  module->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor loss = at::zeros({});
    for (size_t i = 0; i < inputs.size(); i++) loss = loss + (self.parameter(i) * inputs[i].toTensor()).sum();
    return loss;
  });
  const nn::ModulePtr model = accelerator->preparation().prepare_model(module);
  const auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.02}});
  plain->add_group(parameters, std::nullopt, std::nullopt);
  const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
  for (int step = 0; step < steps; step++) {
    const MicroBatch micro(accelerator, {model});
    const Program like{accelerator, tensors, nullptr, nullptr};
    nn::Inputs inputs;
    {
      const at::NoGradGuard no_grad;
      for (const auto& [name, gradient] : like.gradients(step)) inputs.emplace_back(gradient.detach());
    }
    accelerator->backward().run(model->call(inputs).toTensor());
    optimizer->step();
    optimizer->zero_grad(/*set_to_none=*/true);
  }
  const at::NoGradGuard no_grad;
  return Program{accelerator, tensors, nullptr, nullptr}.values();
}

TEST(RegisteredParameters, TrainAsModelsDoThatAutogradKnows) {
  for (const int ranks : {1, 2, 3})
    for (const int accumulation : {1, 2}) {  // dividing by a power of two is exact, before a sum or after it
      SCOPED_TRACE(text(ranks, " ranks, accumulation ", accumulation));
      StateSettings state;
      state.gradient_accumulation_steps = accumulation;
      tests::run_accelerators(ranks, state, [&](const AcceleratorPtr& accelerator) {
        const Program program = new_program(accelerator);
        for (int step = 0; step < 6; step++) program.step(step);
        const auto expected = train_by_autograd(accelerator, 6);
        // The order of a sum over three ranks depends on the place in a bucket.
        if (ranks < 3) expect_same(program.values(), expected);
        for (const auto& [name, tensor] : program.values())
          EXPECT_TRUE(at::allclose(tensor, expected.at(name), 1e-5, 1e-6)) << name;
      });
    }
}

TEST(RegisteredParameters, AllRanksBeginWithTheValuesOfTheFirst) {
  for (const bool is_sharded : {false, true})
    tests::run_accelerators(3, {}, [&](const AcceleratorPtr& accelerator) {
      const Program program =
          new_program(accelerator, is_sharded ? sharded() : FsdpSettings(), accelerator->state().process_index());
      expect_same(program.values(), Program{accelerator, new_tensors(), nullptr, nullptr}.values());
    });
}

TEST(RegisteredParameters, TheMemoryStaysWhereItIsAndIsWholeUnderSharding) {
  for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp})
    for (const int64_t least : {0, 10})
      tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
        const Program program = new_program(accelerator, sharded(strategy, least));
        const Program whole{accelerator, new_tensors(), nullptr, nullptr};
        std::vector<const void*> addresses;
        for (const auto& [name, tensor] : program.tensors) addresses.push_back(tensor.const_data_ptr());
        for (int step = 0; step < 3; step++) {
          program.step(step);
          for (size_t i = 0; i < addresses.size(); i++) {
            EXPECT_EQ(program.tensors[i].second.const_data_ptr(), addresses[i]);
            EXPECT_EQ(program.tensors[i].second.sizes(), whole.tensors[i].second.sizes());
            EXPECT_FALSE(program.tensors[i].second.requires_grad());
          }
        }
        const auto& model = program.parameters->model();
        EXPECT_EQ(model->parts()->sharded_modules().size(), least == 0 ? 1U : 3U);
        for (const at::Tensor& parameter : model->module()->parameters()) EXPECT_FALSE(parameter.grad().defined());
      });
}

TEST(RegisteredParameters, ShardingTrainsAlikeWithAPartOfTheStates) {
  for (const int ranks : {2, 3})
    for (const int accumulation : {1, 3}) {
      SCOPED_TRACE(text(ranks, " ranks, accumulation ", accumulation));
      StateSettings state;
      state.gradient_accumulation_steps = accumulation;
      ParametersStepSettings clipping;
      clipping.max_grad_norm = 0.5;
      std::map<std::string, at::Tensor> expected;
      std::optional<double> norm;
      std::mutex mutex;
      int64_t whole_bytes = 0, sharded_bytes = 0;
      const auto train = [&](const FsdpSettings& settings, int64_t& bytes) {
        tests::run_accelerators(ranks, state, [&](const AcceleratorPtr& accelerator) {
          const Program program = new_program(accelerator, settings);
          std::optional<double> own;
          for (int step = 0; step < 6; step++) own = program.step(step, clipping);
          const std::lock_guard<std::mutex> lock(mutex);
          ASSERT_TRUE(own.has_value());
          if (expected.empty()) {
            expected = program.values();
            norm = own;
          }
          EXPECT_NEAR(*own, *norm, 1e-5);
          for (const auto& [name, tensor] : program.values())
            EXPECT_TRUE(at::allclose(tensor, expected.at(name), 1e-5, 1e-6)) << name;
          bytes += program.optimizer->state_bytes();
        });
      };
      train({}, whole_bytes);
      train(sharded(), sharded_bytes);
      // Steps are counted for each parameter on each rank.
      EXPECT_EQ(sharded_bytes - ranks * 16, (whole_bytes - ranks * 16) / ranks);
    }
}

// Against the engine's own tensors, whose gradients are reported one by one.
TEST(RegisteredParameters, RandomProgramsTrainAsOneByOne) {
  for (uint32_t seed = 0; seed < 24; seed++) {
    std::mt19937 choice(seed);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(choice); };
    const int ranks = draw(1, 3), accumulation = draw(1, 3), steps = 2 * accumulation;
    const bool is_sharded = draw(0, 2) == 0;
    SCOPED_TRACE(
        text("seed ", seed, ", ranks ", ranks, ", accumulation ", accumulation, is_sharded ? ", sharded" : ""));
    nn::NamedTensors likes;
    const int count = draw(1, 9);
    for (int i = 0; i < count; i++) {
      const at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
      std::vector<int64_t> shape(static_cast<size_t>(draw(is_sharded ? 1 : 0, 3)));
      for (int64_t& size : shape) size = draw(0, 9);
      const std::string level = draw(0, 1) == 0 ? "" : text("level", draw(0, 2), ".");
      likes.emplace_back(text(level, "p", i), at::ones(shape, dtypes[draw(0, 3)]));
    }
    const auto gradient = [](const at::Tensor& like, int rank, int step) {
      return (at::arange(like.numel(), at::kDouble).view(like.sizes()) * 0.125 + (rank + 1) * (step + 1)) * 0.0625;
    };
    const double bucket = draw(0, 1) == 0 ? 25 : 0.00005;
    StateSettings state;
    state.gradient_accumulation_steps = accumulation;
    tests::run_accelerators(ranks, state, [&](const AcceleratorPtr& accelerator) {
      const int rank = accelerator->state().process_index();
      std::mt19937 own(seed * 8 + static_cast<uint32_t>(rank));
      const auto new_optimizer = [&](const nn::Module& module) {
        const auto plain = optim::make_optimizer(optim::sgd_rule(), {{"lr", 0.5}, {"momentum", 0.5}});
        plain->add_group(module.parameters(), std::nullopt, std::nullopt);
        return accelerator->preparation().prepare_optimizer(plain);
      };
      nn::NamedTensors tensors;
      for (const auto& [name, like] : likes) tensors.emplace_back(name, like.clone());
      std::shuffle(tensors.begin(), tensors.end(), own);  // as a hash map's, on each rank another order
      const auto registered = accelerator->preparation().register_parameters([&] { return tensors; }, bucket,
                                                                             is_sharded ? sharded() : FsdpSettings());
      const auto optimizer = new_optimizer(*registered->model()->module());
      const nn::ModulePtr module = RegisteredMemory(
                                       [&] {
                                         nn::NamedTensors copies;
                                         for (const auto& [name, like] : likes) copies.emplace_back(name, like.clone());
                                         return copies;
                                       }(),
                                       at::kCPU)
                                       .module();
      const auto one_by_one = accelerator->preparation().prepare_parameters(module, bucket, FsdpSettings());
      const auto reference = new_optimizer(*module);
      for (int step = 0; step < steps; step++) {
        nn::NamedTensors given;
        for (const auto& [name, tensor] : tensors) {
          at::Tensor computed = gradient(tensor, rank, step);
          if (own() % 3 == 0) computed = computed.to(tensor.scalar_type());
          if (own() % 3 == 0 && computed.dim() > 1) computed = computed.transpose(0, 1).contiguous().transpose(0, 1);
          given.emplace_back(name, computed);
        }
        std::shuffle(given.begin(), given.end(), own);
        accelerator::step_parameters(*accelerator, *registered, *optimizer, given, {}, false);
        const MicroBatch micro(accelerator, {});
        const auto named = nn::named_parameters(*module);
        for (size_t i = 0; i < named.size(); i++) one_by_one->grad_ready(i, gradient(named[i].second, rank, step));
        one_by_one->synchronize();
        reference->step();
      }
      for (const auto& [name, tensor] : tensors) {
        const at::Tensor expected = nn::find_tensor(*module, name).detach();
        if (is_sharded)  // the mean is taken before the factor of the window
          EXPECT_TRUE(at::allclose(tensor, expected, 0.02, 0.02)) << name << tensor << expected;
        else
          EXPECT_TRUE(at::equal(tensor, expected)) << name << tensor << expected;
      }
    });
  }
}

TEST(RegisteredParameters, TrainingsGoOnBitForBitFromCheckpoints) {
  for (const bool is_sharded : {false, true}) {
    SCOPED_TRACE(is_sharded ? "sharded" : "whole");
    const checkpoint::tests::Folder folder;
    StateSettings state;
    state.gradient_accumulation_steps = 2;
    tests::run_accelerators(2, state, [&](const AcceleratorPtr& accelerator) {
      const FsdpSettings settings = is_sharded ? sharded() : FsdpSettings();
      const Program program = new_program(accelerator, settings);
      for (int step = 0; step < 3; step++) program.step(step);  // in the middle of a window
      accelerator->checkpoints().save_state(folder / "s");
      const auto saved = program.values();
      for (int step = 3; step < 8; step++) program.step(step);
      const auto expected = program.values();
      accelerator->free_memory();

      const Program resumed = new_program(accelerator, settings, /*first=*/5);
      const void* const address = resumed.tensors[0].second.const_data_ptr();
      resumed.step(0);
      accelerator->checkpoints().load_state(folder / "s");
      expect_same(resumed.values(), saved);
      for (int step = 3; step < 8; step++) resumed.step(step);
      expect_same(resumed.values(), expected);
      EXPECT_EQ(resumed.tensors[0].second.const_data_ptr(), address);
    });
  }
}

TEST(RegisteredParameters, CheckpointsLoadOnAnotherNumberOfRanks) {
  const checkpoint::tests::Folder folder;
  std::map<std::string, at::Tensor> saved;
  std::mutex mutex;
  tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
    const Program program = new_program(accelerator, sharded());
    program.step(0);
    accelerator->checkpoints().save_state(folder / "s");
    accelerator->files().save_model(program.parameters->model()->module(), folder / "m",
                                    accelerator->state().is_main_process());
    const std::lock_guard<std::mutex> lock(mutex);
    saved = program.values();
  });
  for (const int ranks : {1, 3})
    tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
      const Program program = new_program(accelerator, ranks == 1 ? FsdpSettings() : sharded(), /*first=*/7);
      accelerator->checkpoints().load_state(folder / "s");
      expect_same(program.values(), saved);
    });
  EXPECT_TRUE(std::filesystem::exists(folder / "m/model.safetensors"));
}

// Two networks of one program each have their own windows.
TEST(RegisteredParameters, TwoSetsAccumulateApart) {
  StateSettings state;
  state.gradient_accumulation_steps = 2;
  tests::run_accelerators(2, state, [](const AcceleratorPtr& accelerator) {
    const Program first = new_program(accelerator), second = new_program(accelerator);
    for (int step = 0; step < 4; step++) {
      EXPECT_EQ(first.step(step, {}, true).has_value(), step % 2 == 1);
      EXPECT_EQ(second.step(step, {}, true).has_value(), step % 2 == 1);
    }
    expect_same(first.values(), second.values());
  });
}

TEST(RegisteredParameters, AnErrorOfOneRankIsThatOfAll) {
  tests::run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    const bool is_wrong = accelerator->state().process_index() == 1;
    tests::expect_error(Status::kTypeMismatch, "rank 1: parameter 'bias' is of dtype int64", [&] {
      accelerator->preparation().register_parameters(
          [&] {
            return nn::NamedTensors{{"bias", at::zeros({2}, is_wrong ? at::kLong : at::kFloat)}};
          },
          25, FsdpSettings());
    });
    tests::expect_error(Status::kCollectiveMismatch,
                        "is parameter bias Float[2] on rank 0 and parameter bias Float[3] on rank 1", [&] {
                          accelerator->preparation().register_parameters(
                              [&] {
                                return nn::NamedTensors{{"bias", at::zeros({is_wrong ? 3 : 2})}};
                              },
                              25, FsdpSettings());
                        });
    const Program program = new_program(accelerator);  // neither has left a trace
    program.step(0);
  });
}

// Regression: with `ignored_modules`, gradients of parameters that the application computes were averaged for other
// parameters than it named, or for none.
TEST(RegisteredParameters, WhatOnlyShardingLeavesOutIsRefused) {
  tests::run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    FsdpSettings settings = sharded();
    settings.ignored_modules = std::string("layers.1");
    tests::expect_error(Status::kUnsupported, "ignored_modules leaves out 1 trainable parameters",
                        [&] { new_program(accelerator, settings); });
    tests::expect_error(Status::kUnsupported, "parameter 'scale' is a single number", [&] {
      accelerator->preparation().register_parameters(
          [] {
            return nn::NamedTensors{{"scale", at::ones({})}};
          },
          25, sharded());
    });
  });
}

}  // namespace registered_parameters_test
}  // namespace accel::accelerator
