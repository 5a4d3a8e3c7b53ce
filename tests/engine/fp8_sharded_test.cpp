// SPDX-License-Identifier: Apache-2.0
// Models that are prepared for fp8 gather the weights of their layers in 8 bits, and train as in one process, whatever
// shards them.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "accelerator/join_uneven_inputs.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "base/error.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/fp8/fp8.hpp"
#include "config/generated/settings/state/state.hpp"
#include "expect_error.hpp"
#include "fsdp_fixture.hpp"
#include "kernels/fp8/fp8_values.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"
#include "precision/fp8_recipe.hpp"

namespace accel::accelerator {
namespace fp8_sharded_test {

using kernels::Fp8Granularity;
using parallel::fsdp_fixture::by_blocks;
using tests::AcceleratorPtr;

constexpr int64_t kWidth = 48, kBatch = 12;
constexpr int kBlocks = 4, kSteps = 8;
constexpr double kTolerance = 0.03;  // of losses, against those of one process

using Seen = std::map<std::string, at::Tensor>;  // weights, as the latest forward has seen them

// Of the covered layers, the first and the last are left out.
std::shared_ptr<nn::CallbackModule> make_model(const std::shared_ptr<Seen>& seen = std::make_shared<Seen>(),
                                               c10::Device device = at::kCPU) {
  auto model = std::make_shared<nn::CallbackModule>("Net");
  for (int i = 0; i < kBlocks; i++) {
    auto block = std::make_shared<nn::CallbackModule>("Block");
    const at::Tensor weight = at::linspace(-1, 1, kWidth * kWidth).mul(17.3 + i).sin().mul(0.2).view({kWidth, kWidth});
    block->add_parameter("weight", weight.to(device), true);
    block->add_parameter("bias", at::linspace(-0.1, 0.1, kWidth).to(device), true);
    const std::string name = "block" + std::to_string(i) + ".weight";
    block->set_forward([seen, name](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
      (*seen)[name] = self.parameter(0).detach().clone();
      const at::Tensor& x = inputs[0].toTensor();
      return x + at::tanh(at::linear(x, self.parameter(0), self.parameter(1)));
    });
    model->add_child("block" + std::to_string(i), block);
  }
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& [name, child] : self.children()) x = child->call(x);
    return x;
  });
  return model;
}

at::Tensor batch_of(int step) {
  return at::linspace(-1, 1, kBatch * kWidth).mul(5.7 + step).cos().view({kBatch, kWidth});
}

struct Training {
  int ranks = 1;
  PrepareModelSettings preparation = {};
  Fp8Settings fp8 = {};
  int accumulation = 1;
};

Training sharded(int ranks, const FsdpSettings& fsdp = by_blocks()) {
  Training run;
  run.ranks = ranks;
  run.preparation.fsdp = fsdp;
  return run;
}

StateSettings state_of(const Training& run) {
  StateSettings state;
  state.mixed_precision = Precision::kFp8;
  state.gradient_accumulation_steps = run.accumulation;
  return state;
}

struct Prepared {
  AcceleratorPtr accelerator;
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  std::shared_ptr<nn::CallbackModule> inner = make_model(seen);
  nn::ModulePtr model = {};
  std::shared_ptr<PreparedOptimizer> optimizer = {};

  int rank() const { return accelerator->state().process_index(); }
  std::map<std::string, at::Tensor> whole() const {
    return parallel::fsdp_fixture::whole_parameters(*require_prepared(model));
  }
  double step(int number, int ranks) const {
    const MicroBatch micro(accelerator, {model});
    const int64_t share = kBatch / ranks;
    const at::Tensor rows = batch_of(number).slice(0, rank() * share, (rank() + 1) * share);
    const at::Tensor loss = (model->call(rows) - rows.roll(1, 1)).square().mean();
    accelerator->backward().run(loss);
    optimizer->step();
    optimizer->zero_grad(true);
    return loss.item<double>();
  }
};

void on_ranks(const Training& run, const std::function<void(Prepared& prepared)>& body) {
  tests::run_accelerators(run.ranks, state_of(run), [&](const AcceleratorPtr& accelerator) {
    accelerator->precision().set_fp8(run.fp8);
    Prepared prepared{accelerator};
    const auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.004}});
    plain->add_group(prepared.inner->parameters(), std::nullopt, std::nullopt);
    prepared.model = accelerator->preparation().prepare_model(prepared.inner, run.preparation);
    prepared.optimizer =
        std::dynamic_pointer_cast<PreparedOptimizer>(accelerator->preparation().prepare_optimizer(plain));
    body(prepared);
  });
}

std::vector<double> losses_of(const Training& run) {
  std::vector<double> losses(kSteps, 0);
  std::mutex mutex;
  on_ranks(run, [&](Prepared& prepared) {
    for (int i = 0; i < kSteps; i++) {
      const double loss = prepared.step(i, run.ranks);
      const std::lock_guard<std::mutex> lock(mutex);
      losses[static_cast<size_t>(i)] += loss / run.ranks;
    }
  });
  return losses;
}

void expect_as_alone(const Training& run) {
  Training alone;
  alone.fp8 = run.fp8;
  alone.accumulation = run.accumulation;
  const std::vector<double> expected = losses_of(alone), losses = losses_of(run);
  EXPECT_LT(expected.back(), 0.9 * expected.front());
  for (size_t i = 0; i < losses.size(); i++) EXPECT_NEAR(losses[i], expected[i], kTolerance * expected[i]) << i;
}

// The values of the weights in a forward, from unrounded ones.
Seen values_in_forward(const std::map<std::string, at::Tensor>& whole, Fp8Granularity granularity, bool in_8_bits) {
  Seen values;
  for (int i = 0; i < kBlocks; i++) {
    const std::string name = "block" + std::to_string(i) + ".weight";
    const at::Tensor& weight = whole.at(name);
    const bool is_covered = in_8_bits && i > 0 && i + 1 < kBlocks;
    values[name] = is_covered
                       ? kernels::dequantize(kernels::quantize(weight, at::kFloat8_e4m3fn, granularity), at::kBFloat16)
                       : weight.to(at::kBFloat16);
  }
  return values;
}

void expect_same(const Seen& seen, const Seen& expected) {
  ASSERT_EQ(seen.size(), expected.size());
  for (const auto& [name, values] : expected) EXPECT_TRUE(at::equal(seen.at(name), values)) << name;
}

TEST(Fp8Sharded, RoundsTheLayersOfTheRecipe) {
  for (const auto scaling : {Fp8Scaling::kCurrent, Fp8Scaling::kRowwise, Fp8Scaling::kBlockwise})
    for (const bool gathers : {true, false}) {
      Training run = sharded(2);
      run.fp8.scaling = scaling;
      run.fp8.fsdp_all_gather = gathers;
      const Fp8Granularity granularity = scaling == Fp8Scaling::kCurrent   ? Fp8Granularity::kTensor
                                         : scaling == Fp8Scaling::kRowwise ? Fp8Granularity::kRow
                                                                           : Fp8Granularity::kBlock;
      on_ranks(run, [&](Prepared& prepared) {
        for (int i = 0; i < 2; i++) {
          const Seen expected = values_in_forward(prepared.whole(), granularity, gathers);
          prepared.step(i, run.ranks);
          expect_same(*prepared.seen, expected);
        }
        prepared.model->train(false);
        const at::NoGradGuard no_grad;
        const Seen expected = values_in_forward(prepared.whole(), granularity, /*in_8_bits=*/false);
        prepared.model->call(batch_of(0));
        expect_same(*prepared.seen, expected);
      });
    }
}

TEST(Fp8Sharded, TrainsAsOneProcess) {
  for (const int ranks : {2, 3, 4})
    for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
      SCOPED_TRACE(text(ranks, " ranks, strategy ", static_cast<int>(strategy)));
      Training run = sharded(ranks);
      run.preparation.fsdp.sharding_strategy = strategy;
      run.accumulation = ranks == 3 ? 2 : 1;
      run.fp8.scaling = ranks == 4 ? Fp8Scaling::kRowwise : Fp8Scaling::kCurrent;
      expect_as_alone(run);
    }
}

TEST(Fp8Sharded, TrainsAsOneProcessWithEachSetting) {
  Training run = sharded(4);
  run.preparation.fsdp.activation_checkpointing = true;
  run.preparation.fsdp.reshard_group_size = 2;
  expect_as_alone(run);
  run = sharded(2);
  run.preparation.fsdp.cpu_offload = true;
  run.preparation.fsdp.forward_prefetch = true;
  expect_as_alone(run);
  run = {};
  run.ranks = 2;
  run.preparation.deepspeed.enabled = true;
  run.preparation.deepspeed.zero_stage = 3;
  run.preparation.deepspeed.gradient_clipping = 0.0;
  expect_as_alone(run);
}

TEST(Fp8Sharded, FollowsRanksThatStillHaveInputs) {
  const Training run = sharded(3);
  on_ranks(run, [&](Prepared& prepared) {
    JoinedInputs joined(prepared.accelerator, {prepared.model}, std::nullopt);
    const int steps = prepared.rank() == 1 ? 4 : 1 + prepared.rank();
    for (int i = 0; i < steps; i++) EXPECT_TRUE(std::isfinite(prepared.step(i, run.ranks)));
    joined.finish();
    const Seen expected = values_in_forward(prepared.whole(), Fp8Granularity::kTensor, true);
    prepared.step(5, run.ranks);
    expect_same(*prepared.seen, expected);
  });
}

TEST(Fp8Sharded, KeepsUnroundedWeightsInCheckpoints) {
  const checkpoint::tests::Folder folder;
  std::map<std::string, at::Tensor> expected;
  std::mutex mutex;
  on_ranks(sharded(2), [&](Prepared& prepared) {
    for (int i = 0; i < 3; i++) prepared.step(i, 2);
    auto whole = prepared.whole();
    prepared.accelerator->checkpoints().save_state(folder / "s");
    const std::lock_guard<std::mutex> lock(mutex);
    if (prepared.rank() == 0) expected = std::move(whole);
  });
  on_ranks(sharded(3), [&](Prepared& prepared) {
    prepared.accelerator->checkpoints().load_state(folder / "s");
    const auto whole = prepared.whole();
    for (const auto& [name, weight] : expected) {
      EXPECT_EQ(whole.at(name).scalar_type(), at::kFloat);
      EXPECT_TRUE(at::equal(whole.at(name), weight)) << name;
    }
    const Seen in_forward = values_in_forward(whole, Fp8Granularity::kTensor, true);
    prepared.step(3, 3);
    expect_same(*prepared.seen, in_forward);
  });
}

// The first rank alone has weights.
TEST(Fp8Sharded, LoadsOnOneRank) {
  FsdpSettings fsdp = by_blocks();
  fsdp.fsdp_version = 2;
  fsdp.cpu_ram_efficient_loading = true;
  tests::run_accelerators(2, state_of({}), [&](const AcceleratorPtr& accelerator) {
    PrepareModelSettings preparation;
    preparation.fsdp = fsdp;
    const auto seen = std::make_shared<Seen>();
    const auto inner = make_model(seen, accelerator->state().process_index() == 0 ? at::kCPU : at::kMeta);
    const auto model = accelerator->preparation().prepare_model(inner, preparation);
    model->call(batch_of(0));
    std::map<std::string, at::Tensor> whole;
    for (const auto& [name, weight] : nn::named_parameters(*make_model())) whole[name] = weight.detach();
    expect_same(*seen, values_in_forward(whole, Fp8Granularity::kTensor, true));
  });
}

TEST(Fp8Sharded, RefusesProductsOfUnroundedWeights) {
  Fp8Settings fp8;
  fp8.fsdp_all_gather = true;
  fp8.override_input_gradient = true;
  tests::expect_error(Status::kInvalidArgument, "fsdp_all_gather is 1 and override_input_gradient is 1",
                      [&] { precision::make_fp8_recipe(fp8); });
  fp8.override_input_gradient = false;
  fp8.scaling = Fp8Scaling::kDelayed;
  tests::expect_error(Status::kInvalidArgument, "fsdp_all_gather is 1 and scaling is DELAYED",
                      [&] { precision::make_fp8_recipe(fp8); });
  fp8.fsdp_all_gather.value = std::nullopt;
  EXPECT_FALSE(precision::make_fp8_recipe(fp8).fsdp_all_gather);
  fp8.scaling = Fp8Scaling::kCurrent;
  fp8.override_forward = true;
  EXPECT_FALSE(precision::make_fp8_recipe(fp8).fsdp_all_gather);
}

}  // namespace fp8_sharded_test
}  // namespace accel::accelerator
