// SPDX-License-Identifier: Apache-2.0
// What is asked of an accelerator through LibTorch's interfaces, on the simulated device. Each test is a process of its
// own, because the device stays registered.
#include "tensor/device/device_work.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/batch_size_search.hpp"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/device_copy.hpp"
#include "expect_error.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/recompute/activation_checkpointing.hpp"
#include "own_process.hpp"
#include "precision/autocast.hpp"
#include "precision/autocast_weight_cache.hpp"
#include "simulated_device/simulated_device.h"
#include "state/random.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_plugins.hpp"
#include "tensor/device/generator.hpp"
#include "tensor/device/memory.hpp"
#include "tensor/dlpack.hpp"

namespace accel::tensor {
namespace device_work_test {

constexpr auto kSimulated = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kSimulated, 1);

std::string simulated_device() {
  const char* const path = std::getenv("SIMULATED_DEVICE_LIBRARY");
  require(path != nullptr, Status::kNotFound, "SIMULATED_DEVICE_LIBRARY is not set; run the registered test");
  return path;
}

template <typename Function>
Function* find(const char* name) {
  void* const library = dlopen(simulated_device().c_str(), RTLD_NOW | RTLD_NOLOAD);
  auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
  require(found != nullptr, Status::kNotFound, "the simulated device has no ", name);
  return found;
}
#define SIMULATED(name) find<decltype(simulated_device_##name)>("simulated_device_" #name)

void on_simulated_device(const std::function<void()>& test) {
  tests::in_own_process([&] {
    load_device_plugins(simulated_device(), "a test");
    test();
  });
}

TEST(DeviceWork, MemoryIsCounted) {
  on_simulated_device([] {
    const DeviceMemory before = device_memory(kDevice);
    at::Tensor tensor = empty({1 << 20}, at::kByte, kDevice);
    DeviceMemory now = device_memory(kDevice);
    EXPECT_GE(now.allocated, before.allocated + (1 << 20));
    EXPECT_GE(now.reserved, now.allocated);
    EXPECT_GT(now.total.value_or(0), 0);
    tensor.reset();
    synchronize(kDevice);
    now = device_memory(kDevice);
    EXPECT_LT(now.allocated, before.allocated + (1 << 20));
    EXPECT_GE(now.peak_allocated, before.allocated + (1 << 20));
    reset_peak_memory(kDevice);
    EXPECT_EQ(device_memory(kDevice).peak_allocated, now.allocated);
    empty_cache(kSimulated);
    EXPECT_LE(device_memory(kDevice).reserved, now.reserved);
    EXPECT_EQ(device_memory(c10::Device(kSimulated, 0)).allocated, 0) << "of another device";
  });
}

TEST(DeviceWork, SynchronizingWaitsForAllStreams) {
  on_simulated_device([] {
    EXPECT_EQ(current_device(kSimulated).index(), 0);
    set_current_device(kDevice);
    EXPECT_EQ(current_device(kSimulated), kDevice);
    SIMULATED(run_kernel)(1, 50'000);
    const auto start = std::chrono::steady_clock::now();
    synchronize(kDevice);
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
  });
}

TEST(DeviceWork, GeneratorsDrawTheSameNumbersAgain) {
  on_simulated_device([] {
    const auto draw = [](at::Generator generator) {
      return at::randn({16}, generator, at::TensorOptions().device(kDevice)).cpu();
    };
    at::Generator generator = tensor::new_generator(7, kDevice);
    const at::Tensor first = draw(generator);
    EXPECT_TRUE(first.equal(draw(tensor::new_generator(7, kDevice))));
    EXPECT_FALSE(first.equal(draw(generator)));
    tensor::set_seed(generator, 7);
    EXPECT_TRUE(first.equal(draw(generator)));
    at::Generator of_device = tensor::default_generator(kDevice);
    const at::Tensor saved = tensor::generator_state(of_device);
    const at::Tensor expected = draw(of_device);
    tensor::set_generator_state(of_device, saved);
    EXPECT_TRUE(expected.equal(draw(tensor::default_generator(kDevice))));
    state::set_seed_of_default_generators(7);
    EXPECT_TRUE(first.equal(draw(tensor::default_generator(kDevice)))) << "all devices are seeded";
  });
}

TEST(DeviceWork, CastsOfWeightsAreKeptOnTheDevice) {
  on_simulated_device([] {
    ASSERT_TRUE(precision::has_autocast(kSimulated));
    precision::AutocastWeightCache casts(kSimulated);
    const at::Tensor weight = at::linspace(-1, 1, 64).reshape({8, 8}).to(kDevice).requires_grad_();
    const at::Tensor input = at::linspace(0, 1, 16).reshape({2, 8}).to(kDevice);
    const auto run = [&](precision::AutocastWeightCache* kept) {
      const precision::AutocastWeightCache::Scope scope(kept);
      const precision::AutocastGuard autocast(Precision::kBf16, kSimulated);
      return at::linear(input, weight);
    };
    const at::Tensor fresh = run(nullptr);
    EXPECT_EQ(fresh.scalar_type(), at::kBFloat16);
    EXPECT_EQ(casts.size(), 0U);
    for (int forward = 0; forward < 2; forward++) {
      EXPECT_TRUE(run(&casts).cpu().equal(fresh.cpu()));
      EXPECT_EQ(casts.size(), 1U);
    }
  });
}

TEST(DeviceWork, BatchesAreCopiedBesideTheComputation) {
  on_simulated_device([] {
    data::DeviceCopy copy(kDevice, /*non_blocking=*/true);
    ASSERT_TRUE(copy.is_asynchronous());
    const at::Tensor batch = at::linspace(0, 1, 1000).pin_memory();
    auto started = copy.start(batch);
    const at::Tensor there = copy.finish(std::move(started)).toTensor();
    EXPECT_EQ(there.device(), kDevice);
    EXPECT_TRUE(there.mul(2).cpu().equal(batch.mul(2)));
  });
}

TEST(DeviceWork, DlpackLendsMemoryOfTheDevice) {
  on_simulated_device([] {
    const at::Tensor tensor = at::linspace(0, 1, 6).to(kDevice);
    const at::Tensor lent = from_dlpack(to_dlpack_versioned(tensor));
    EXPECT_EQ(lent.device(), kDevice);
    EXPECT_EQ(lent.const_data_ptr(), tensor.const_data_ptr());
    EXPECT_TRUE(lent.cpu().equal(tensor.cpu()));
  });
}

TEST(DeviceWork, ModulesRefuseTensorsOfAnotherDevice) {
  on_simulated_device([] {
    nn::Linear layer(4, 2, true);
    layer.to(std::nullopt, kDevice);
    tests::expect_error(Status::kInvalidArgument,
                        "a module of kind 'Linear' with parameters on sim:1 was called with a tensor on cpu; expected "
                        "the same device: move one of them",
                        [&] {
                          layer.call(nn::Inputs{at::ones({1, 4})});
                        });
    EXPECT_EQ(layer.call(nn::Inputs{at::ones({1, 4}).to(kDevice)}).toTensor().device(), kDevice);
  });
}

// With dropout, under autocast, back-propagated by a thread of the device.
TEST(DeviceWork, CheckpointedActivationsAreOnTheHostUntilTheBackward) {
  on_simulated_device([] {
    constexpr int64_t kWidth = 64, kRows = 512, kBlocks = 4;
    std::vector<nn::ModulePtr> blocks;
    for (int64_t i = 0; i < kBlocks; i++)
      blocks.push_back(std::make_shared<nn::Sequential>(
          std::vector<nn::ModulePtr>{std::make_shared<nn::Linear>(kWidth, kWidth, true),
                                     std::make_shared<nn::Activation>("gelu"), std::make_shared<nn::Dropout>(0.3)}));
    const auto model = std::make_shared<nn::Sequential>(blocks);
    model->to(std::nullopt, kDevice);
    const at::Tensor batch = at::linspace(-1, 1, kRows * kWidth).reshape({kRows, kWidth});
    struct Results {
      std::vector<at::Tensor> gradients;
      int64_t kept;  // after the forward
    };
    const auto run = [&](Recompute what, bool offload) {
      ActivationCheckpointingSettings settings;
      settings.modules = std::string("[0-9]+");
      settings.recompute = what;
      settings.offload = offload;
      nn::checkpoint_activations(*model, settings);
      state::set_seed_of_default_generators(7);
      const int64_t before = device_memory(kDevice).allocated;
      at::Tensor loss;
      {
        const precision::AutocastGuard autocast(Precision::kBf16, kSimulated);
        loss = model->call(batch.to(kDevice)).square().mean();
      }
      synchronize(kDevice);
      Results results{{}, device_memory(kDevice).allocated - before};
      loss.backward();
      for (const at::Tensor& parameter : model->parameters()) {
        results.gradients.push_back(parameter.grad().cpu());
        parameter.mutable_grad().reset();
      }
      return results;
    };
    const Results expected = run(Recompute::kNothing, false), kept = run(Recompute::kAll, false);
    for (const Recompute what : {Recompute::kAll, Recompute::kKeepMatmuls}) {
      const Results actual = run(what, true);
      for (size_t i = 0; i < expected.gradients.size(); i++) {
        EXPECT_TRUE(actual.gradients[i].equal(expected.gradients[i])) << i;
        EXPECT_TRUE(kept.gradients[i].equal(expected.gradients[i])) << i;
      }
      if (what == Recompute::kAll) {
        EXPECT_LT(actual.kept, kept.kept / 2);
      }
    }
    EXPECT_LT(kept.kept, expected.kept);
  });
}

TEST(DeviceWork, MemoryThatRunsOutIsRecognised) {
  on_simulated_device([] {
    SIMULATED(fail_allocation)(1, 1);
    const auto status = capi::guarded("accel_test", [] { at::empty({1 << 20}, at::TensorOptions().device(kDevice)); });
    EXPECT_EQ(status, ACCEL_ERROR_OUT_OF_MEMORY) << accel_last_error();
    EXPECT_TRUE(accelerator::is_out_of_memory(static_cast<Status>(status), accel_last_error()));
  });
}

TEST(DeviceWork, StatesChooseTheDevice) {
  tests::in_own_process([] {
    StateSettings settings;
    settings.device_plugins.value = simulated_device();
    settings.mixed_precision.value = Precision::kFp16;
    settings.rng_types.value = "torch,sim";
    const accelerator::Accelerator accelerator(settings);
    EXPECT_EQ(accelerator.state().device(), c10::Device(kSimulated, 0));
    EXPECT_EQ(accelerator.state().distributed_type(), state::DistributedType::kNo);
    EXPECT_NE(accelerator.prepared().grad_scaler, nullptr);
    accel_device_t device;
    ASSERT_EQ(accel_device_default(&device), ACCEL_OK);
    EXPECT_EQ(device.type, ACCEL_DEVICE_OUT_OF_TREE);
    EXPECT_STREQ(accel_device_type_name(device.type), "sim");
    EXPECT_EQ(accel_is_available("sim"), 1);
    accel_value_t memory = ACCEL_VALUE_INIT;
    ASSERT_EQ(accel_device_memory(&device, &memory), ACCEL_OK) << accel_last_error();
    EXPECT_NE(accel_value_get(&memory, "peak_allocated"), nullptr);
    accel_value_dispose(&memory);
    ASSERT_EQ(accel_device_properties(&device, &memory), ACCEL_OK) << accel_last_error();
    EXPECT_STREQ(accel_value_get(&memory, "type")->as.string, "sim");
    accel_value_dispose(&memory);
  });
}

}  // namespace device_work_test
}  // namespace accel::tensor
