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
    options.pin_memory = true;
    const DataLoader loader(rows, std::make_shared<SequentialSampler>(kBatches * kRows), options);
    DataloaderConfig configuration;
    configuration.non_blocking = true;
    return accelerator.preparation().prepare_data_loader(loader, configuration);
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
