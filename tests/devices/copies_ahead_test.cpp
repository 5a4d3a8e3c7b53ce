// SPDX-License-Identifier: Apache-2.0
// A prepared loader copies batches to a device one batch ahead, beside the computation of the step before.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "accelerator/accelerator.hpp"
#include "config/generated/settings/prepare/dataloader_config.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/prepared_dataloader.hpp"
#include "data/sampler.hpp"
#include "device_fixture.hpp"

namespace accel::data {
namespace copies_ahead_test {

constexpr int64_t kBatches = 40, kRows = 8;
constexpr int64_t kDelay = 1000;  // us, of each copy and of each step

class CopiesAhead : public tests::DeviceTest {
 protected:
  static std::shared_ptr<PreparedDataLoader> make_loader(accelerator::Accelerator& accelerator) {
    const auto rows = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(kBatches * kRows)});
    LoaderOptions options;
    options.batch_size = kRows;
    const DataLoader loader(rows, std::make_shared<SequentialSampler>(kBatches * kRows), options);
    return accelerator.preparation().prepare_data_loader(loader, {});
  }

  static StateSettings on_the_device() {
    StateSettings settings;
    settings.torch_device = device().str();
    settings.num_processes = 1;
    settings.process_index = 0;
    return settings;
  }

  // Microseconds of a step, whose kernel takes kDelay.
  static double time_of_a_step(PreparedDataLoader& loader) {
    const auto begin = std::chrono::steady_clock::now();
    int64_t steps = 0;
    while (const auto batch = loader.next()) {
      keep_busy(device(), kDelay);
      steps++;
    }
    tensor::synchronize(device());
    EXPECT_EQ(steps, kBatches);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
           static_cast<double>(kBatches);
  }
};

TEST_F(CopiesAhead, CostNoTimeOfTheirOwn) {
  NEEDS_SIMULATION("copies and kernels that take a given time");
  configure([](auto& settings) { settings.copy_delay_us = kDelay; });
  accelerator::Accelerator accelerator(on_the_device());
  const auto loader = make_loader(accelerator);
  double best = 1e9;
  for (int epoch = 0; epoch < 5; epoch++) best = std::min(best, time_of_a_step(*loader));
  std::printf("a step with a copy and a kernel of 1 ms each takes %.3f ms\n", best / 1000);
  EXPECT_LT(best, 1.5 * kDelay) << "one after another they take 2 ms";
}

TEST_F(CopiesAhead, NothingWaitsForThem) {
  NEEDS_SIMULATION("counts of waits and copies");
  configure([](auto& settings) { settings.copy_delay_us = kDelay; });
  accelerator::Accelerator accelerator(on_the_device());
  const auto loader = make_loader(accelerator);
  loader->next();
  simulated_device_statistics before{}, after{};
  simulation().get_statistics(0, &before);
  keep_busy(device(), 1000 * kDelay);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 1; i < kBatches; i++) ASSERT_TRUE(loader->next());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::microseconds(500 * kDelay))
      << "the host waits for the step";
  simulation().get_statistics(0, &after);
  EXPECT_EQ(after.host_waits, before.host_waits);
  EXPECT_EQ(after.pageable_copies, 0);
  EXPECT_GE(after.copies - before.copies, kBatches - 2);
}

// The system gives none, or none that is large enough: the batches are the same, and their copies wait.
TEST_F(CopiesAhead, BringTheSameFromOrdinaryMemory) {
  NEEDS_SIMULATION("a limit of pinned memory");
  configure([](auto& settings) { settings.pinned_bytes = 16; });
  accelerator::Accelerator accelerator(on_the_device());
  const auto loader = make_loader(accelerator);
  int64_t row = 0;
  for (; const auto batch = loader->next(); row += kRows)
    EXPECT_TRUE(at::equal(batch->toListRef()[0].toTensor().cpu(), at::arange(row, row + kRows)));
  EXPECT_EQ(row, kBatches * kRows);
}

TEST_F(CopiesAhead, BringWhatTheHostHad) {
  be_late({3, 500});
  accelerator::Accelerator accelerator(on_the_device());
  const auto loader = make_loader(accelerator);
  int64_t row = 0;
  while (const auto batch = loader->next()) {
    const at::Tensor rows = batch->toListRef()[0].toTensor();
    EXPECT_EQ(rows.device(), device());
    EXPECT_TRUE(at::equal(rows.add(1).cpu(), at::arange(row + 1, row + 1 + kRows)));
    row += kRows;
  }
}

}  // namespace copies_ahead_test
}  // namespace accel::data
