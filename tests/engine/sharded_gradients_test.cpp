// SPDX-License-Identifier: Apache-2.0
// Sharded parameters whose gradients the application computes.
#include "parallel/fsdp/sharded_gradients.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <mutex>

#include "accelerator/parameters/prepared_parameters.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/settings/state/state.hpp"
#include "expect_error.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"

namespace accel::parallel {
namespace sharded_gradients_test {

using tests::AcceleratorPtr;

// Two layers of a program without autograd, one with a weight that does not train, and a bias beside them.
nn::ModulePtr make_parameters() {
  auto module = std::make_shared<nn::Module>("Program");
  module->add_parameter("bias", at::ones({5}));
  for (const char* const name : {"layer0", "layer1"}) {
    auto layer = std::make_shared<nn::Module>("Layer");
    layer->add_parameter("weight", at::arange(21, at::kFloat).view({7, 3}));
    layer->add_parameter("frozen", at::ones({4}), /*requires_grad=*/false);
    module->add_child(name, layer);
  }
  return module;
}

FsdpSettings by_layers(ShardingStrategy strategy = ShardingStrategy::kFullShard) {
  FsdpSettings settings;
  settings.enabled = true;
  settings.sharding_strategy = strategy;
  settings.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  settings.transformer_cls_names_to_wrap = std::string("Layer");
  return settings;
}

struct Program {
  AcceleratorPtr accelerator;
  nn::ModulePtr module;
  std::shared_ptr<accelerator::PreparedParameters> parameters;
  std::shared_ptr<optim::Optimizer> optimizer;
  std::vector<at::Tensor> trained;

  ApplicationGradients& gradients() const { return parameters->gradients(); }
};

Program make_program(const AcceleratorPtr& accelerator, const FsdpSettings& settings) {
  Program program{accelerator, make_parameters(), nullptr, nullptr, {}};
  for (const at::Tensor& parameter : program.module->parameters())
    if (parameter.requires_grad()) program.trained.push_back(parameter);
  const auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.02}});
  plain->add_group(program.trained, std::nullopt, std::nullopt);
  program.parameters = accelerator->preparation().prepare_parameters(program.module, 25, settings);
  program.optimizer = accelerator->preparation().prepare_optimizer(plain);
  return program;
}

// The gradient depends on the parameter, which must be whole for it.
at::Tensor gradient_of(const at::Tensor& whole, int rank, int step) {
  return whole.detach().mul(0.1).add_(1 + rank + 0.5 * step);
}

// As an application: the layers forwards and backwards, each gathered for its use.
void micro_batch(const Program& program, int step, bool in_place) {
  const int rank = program.accelerator->state().process_index();
  const std::vector<std::string> modules{"", "layer0", "layer1"};
  for (const std::string& module : modules) {
    program.gradients().unshard(module, /*wait=*/true);
    program.gradients().reshard(module);
  }
  for (size_t i = modules.size(); i-- > 0;) {
    program.gradients().unshard(modules[i], /*wait=*/false);
    program.gradients().unshard(modules[i], /*wait=*/true);
    const at::Tensor gradient = gradient_of(program.trained[i], rank, step);
    if (in_place) {
      at::Tensor memory = program.gradients().gradient(i);
      memory.add_(gradient);
      program.parameters->grad_ready(i, {});
    } else {
      program.parameters->grad_ready(i, gradient);
    }
  }
}

std::vector<at::Tensor> train(int ranks, const FsdpSettings& settings, int accumulation, bool in_place, bool async) {
  std::vector<at::Tensor> result;
  std::mutex mutex;
  StateSettings state;
  state.gradient_accumulation_steps = accumulation;
  tests::run_accelerators(ranks, state, [&](const AcceleratorPtr& accelerator) {
    const Program program = make_program(accelerator, settings);
    for (int step = 0; step < 6; step++) {
      const accelerator::MicroBatch micro(accelerator, {});
      micro_batch(program, step, in_place);
      if (async) {
        const auto work = program.parameters->start_synchronize();
        work->wait();
        work->result();
      } else {
        program.parameters->synchronize();
      }
      program.optimizer->step();
      program.optimizer->zero_grad(true);
    }
    std::vector<at::Tensor> whole;
    for (size_t i = 0; i < program.trained.size(); i++) {
      program.gradients().unshard(std::vector<std::string>{"", "layer0", "layer1"}[i], true);
      whole.push_back(program.trained[i].detach().clone());
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (accelerator->state().process_index() == 0) result = std::move(whole);
  });
  return result;
}

TEST(ShardedGradients, TrainAsWithoutSharding) {
  FsdpSettings off;
  off.enabled = false;
  for (const int ranks : {2, 3})
    for (const int accumulation : {1, 3}) {
      const auto expected = train(ranks, off, accumulation, false, false);
      ASSERT_FALSE(at::allclose(expected[1], nn::find_tensor(*make_parameters(), "layer0.weight")));
      for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp})
        for (const bool async : {false, true}) {
          SCOPED_TRACE(text(ranks, " ranks, accumulation ", accumulation, async ? ", async" : ""));
          // A zeroed memory is added to in the first micro-batch, so that both ways have the same sums.
          const auto actual = train(ranks, by_layers(strategy), accumulation, async, async);
          for (size_t i = 0; i < expected.size(); i++) EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-5)) << i;
        }
    }
}

TEST(ShardedGradients, ParametersAreShardsBetweenTheirUses) {
  tests::run_accelerators(3, {}, [](const AcceleratorPtr& accelerator) {
    const Program program = make_program(accelerator, by_layers());
    const int rank = accelerator->state().process_index();
    const std::vector<int64_t> shard{rank == 2 ? 1 : 3, 3};
    const at::Tensor& weight = program.trained[1];
    const at::Tensor frozen = nn::find_tensor(*program.module, "layer0.frozen");
    EXPECT_EQ(weight.sizes(), shard);
    program.gradients().unshard("layer0", true);
    EXPECT_TRUE(at::equal(weight.detach(), nn::find_tensor(*make_parameters(), "layer0.weight").detach()));
    EXPECT_EQ(frozen.numel(), 4);
    program.gradients().reshard("layer0");
    EXPECT_EQ(weight.sizes(), shard);
    micro_batch(program, 0, false);
    program.parameters->synchronize();
    EXPECT_EQ(weight.sizes(), shard);
    EXPECT_EQ(weight.grad().sizes(), shard);
    program.optimizer->step();
    EXPECT_EQ(program.optimizer->state_bytes(),
              3 * sizeof(float) + 2 * sizeof(float) * (shard[0] * 3 * 2 + (rank == 2 ? 1 : 2)));
  });
}

TEST(ShardedGradients, WrongUseIsAnError) {
  tests::run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    const Program program = make_program(accelerator, by_layers());
    tests::expect_error(Status::kInvalidState, "belongs to a sharded model that is prepared already",
                        [&] { accelerator->preparation().prepare_parameters(program.module, 25, by_layers()); });
    tests::expect_error(Status::kNotFound,
                        "module 'layer2' is not sharded by itself; expected one of 'layer0', 'layer1', ''",
                        [&] { program.gradients().unshard("layer2", true); });
    tests::expect_error(Status::kInvalidArgument, "index is 3; expected 0 to 2",
                        [&] { program.gradients().gradient(3); });
    tests::expect_error(Status::kShapeMismatch, "the gradient of 'layer0.weight' has shape [4, 3]; expected [7, 3]",
                        [&] {
                          program.parameters->grad_ready(1, at::zeros({4, 3}));
                        });
    tests::expect_error(Status::kInvalidArgument, "the gradient of 'layer1.weight' is NULL",
                        [&] { program.parameters->grad_ready(2, {}); });
    program.parameters->grad_ready(1, at::ones({7, 3}));
    tests::expect_error(Status::kInvalidState, "the gradient of 'layer0.weight' is ready already", [&] {
      program.parameters->grad_ready(1, at::ones({7, 3}));
    });
    tests::expect_error(Status::kInvalidState, "gradients are not ready: 'bias', 'layer1.weight'",
                        [&] { program.parameters->synchronize(); });
    program.parameters->grad_ready(0, at::ones({5}));
    program.parameters->grad_ready(2, at::ones({7, 3}));
    program.parameters->synchronize();
  });
}

TEST(ShardedGradients, AreInCheckpointsForAnyNumberOfRanks) {
  const checkpoint::tests::Folder folder;
  at::Tensor expected;
  std::mutex mutex;
  const auto step = [](const Program& program) {
    micro_batch(program, 0, false);
    program.parameters->synchronize();
    program.optimizer->step();
    program.optimizer->zero_grad(true);
  };
  const auto whole = [](const Program& program) {
    program.gradients().unshard("layer1", true);
    return program.trained[2].detach().clone();
  };
  tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
    const Program program = make_program(accelerator, by_layers());
    step(program);
    accelerator->checkpoints().save_state(folder / "s");
    const at::Tensor weight = whole(program);
    const std::lock_guard<std::mutex> lock(mutex);
    expected = weight;
  });
  tests::run_accelerators(3, {}, [&](const AcceleratorPtr& accelerator) {
    const Program program = make_program(accelerator, by_layers());
    accelerator->checkpoints().load_state(folder / "s");
    EXPECT_TRUE(at::equal(whole(program), expected));
  });
}

}  // namespace sharded_gradients_test
}  // namespace accel::parallel
