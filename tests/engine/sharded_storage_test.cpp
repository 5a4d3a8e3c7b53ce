// SPDX-License-Identifier: Apache-2.0
// Where the parts of a sharded model are: in files, or for the backward with some of the ranks. Training is the same.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "accelerator/prepared_model.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/settings/state/state.hpp"
#include "expect_error.hpp"
#include "fsdp_fixture.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/file_memory.hpp"

namespace accel::parallel {
namespace sharded_storage_test {

using checkpoint::tests::Folder;
using fsdp_fixture::by_blocks;
using fsdp_fixture::make_model;
using fsdp_fixture::rows_of_step;
using tests::AcceleratorPtr;

constexpr int kSteps = 8;

// How many bytes of files in this folder, whose name ends with a slash, the process has mapped.
size_t mapped_bytes(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(folder + "accel-offload-") == std::string::npos) continue;
    size_t begin = 0, end = 0;
    std::sscanf(line.c_str(), "%zx-%zx", &begin, &end);
    bytes += end - begin;
  }
  return bytes;
}

using WhileTraining = std::function<void(int rank)>;

std::map<std::string, at::Tensor> train(
    int ranks, const FsdpSettings& settings, int accumulation = 1, const WhileTraining& look = [](int) {}) {
  std::map<std::string, at::Tensor> result;
  std::mutex mutex;
  StateSettings state;
  state.gradient_accumulation_steps = accumulation;
  tests::run_accelerators(ranks, state, [&](const AcceleratorPtr& accelerator) {
    const int rank = accelerator->state().process_index();
    const int64_t share = 12 / ranks;
    const auto inner = make_model();
    PrepareModelSettings preparation;
    preparation.fsdp = settings;
    const auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.02}});
    plain->add_group(inner->parameters(), std::nullopt, std::nullopt);
    const auto model = accelerator->preparation().prepare_model(inner, preparation);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    for (int step = 0; step < kSteps; step++) {
      const accelerator::MicroBatch micro(accelerator, {model});
      accelerator->backward().run(
          model->call(rows_of_step(step).slice(0, rank * share, (rank + 1) * share)).square().mean());
      optimizer->step();
      optimizer->zero_grad(step % 2 == 0);
    }
    look(rank);
    auto parameters = fsdp_fixture::whole_parameters(*accelerator::require_prepared(model));
    const std::lock_guard<std::mutex> lock(mutex);
    if (rank == 0) result = std::move(parameters);
  });
  return result;
}

void expect_same(const std::map<std::string, at::Tensor>& actual, const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, parameter] : expected)
    EXPECT_TRUE(at::allclose(actual.at(name), parameter, 2e-5, 2e-5)) << name;
}

TEST(ShardedStorage, GroupsOfRanksKeepParametersForTheBackward) {
  const auto expected = train(1, {});
  for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp})
    for (const int64_t size : {0, 1, 2, 4})
      for (const bool again : {false, true}) {
        SCOPED_TRACE(text("reshard_group_size ", size));
        FsdpSettings settings = by_blocks();
        settings.sharding_strategy = strategy;
        settings.reshard_group_size = size;
        settings.activation_checkpointing = again;
        expect_same(train(4, settings), expected);
      }
  FsdpSettings third = by_blocks();
  third.reshard_group_size = 3;
  tests::expect_error(Status::kInvalidArgument, "reshard_group_size is 3 of 4 ranks; expected a divisor",
                      [&] { train(4, third); });
}

TEST(ShardedStorage, OffloadsToFiles) {
  for (const int accumulation : {1, 2}) {
    const auto expected = train(1, {}, accumulation);
    for (const bool parameters : {false, true})
      for (const bool optimizer : {false, true}) {
        if (!parameters && !optimizer) continue;
        SCOPED_TRACE(text(parameters ? "parameters " : "", optimizer ? "optimizer" : ""));
        const Folder folder;
        FsdpSettings settings = by_blocks();
        settings.cpu_offload = parameters;
        settings.offload_optimizer = optimizer;
        settings.offload_folder = folder / "";
        expect_same(train(2, settings, accumulation, [&](int) { EXPECT_GT(mapped_bytes(folder / ""), 0U); }), expected);
        EXPECT_EQ(mapped_bytes(folder / ""), 0U);
        EXPECT_EQ(folder.entries(), 0U);
      }
  }
}

TEST(ShardedStorage, AFolderThatCannotHoldThePartsIsAnError) {
  FsdpSettings settings = by_blocks();
  settings.cpu_offload = true;
  settings.offload_folder = std::string("/proc/no such folder");
  tests::expect_error(Status::kIo, "offloaded tensors in '/proc/no such folder'", [&] { train(2, settings); });
  settings.cpu_offload = false;
  tests::expect_error(Status::kInvalidArgument, "nothing is offloaded; expected cpu_offload or offload_optimizer too",
                      [&] { train(2, settings); });
}

TEST(ShardedStorageFile, IsMemory) {
  const Folder folder;
  {
    at::Tensor tensor = tensor::file_zeros(folder / "", {1000, 50}, at::kFloat);
    EXPECT_TRUE(tensor.is_contiguous());
    EXPECT_EQ(tensor.sum().item<float>(), 0);
    tensor.copy_(at::linspace(0, 1, 50000).view({1000, 50}));
    tensor::read_ahead(tensor);
    EXPECT_TRUE(at::allclose(tensor.t().contiguous().t(), tensor));
    EXPECT_EQ(mapped_bytes(folder / ""), (50000 * sizeof(float) + 4095) / 4096 * 4096);
  }
  EXPECT_EQ(mapped_bytes(folder / ""), 0U);
  EXPECT_EQ(tensor::file_zeros(folder / "", {0, 4}, at::kHalf).numel(), 0);
  tensor::read_ahead(at::empty({0}));
}

}  // namespace sharded_storage_test
}  // namespace accel::parallel
