// SPDX-License-Identifier: Apache-2.0
// Memory of a device: out of reach of the host, limited, poisoned where it has no value, counted.
#include <ATen/DLConvertor.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace memory_test {

constexpr int64_t kMebibyte = int64_t{1} << 20;

class SimulatedMemory : public SimulatedDeviceTest {
 protected:
  static at::Tensor bytes(int64_t count, int index = 0) {
    return at::empty({count}, at::TensorOptions(at::kByte).device(device(index)));
  }
  static void set_memory(int64_t mebibytes) {
    configure([&](auto& settings) { settings.memory_bytes = mebibytes * kMebibyte; });
  }
};

using SimulatedMemoryDeathTest = SimulatedMemory;

TEST_F(SimulatedMemoryDeathTest, ReadOfTheHostEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const at::Tensor tensor = at::ones({4}, device(1));
  EXPECT_DEATH(
      {
        const volatile float* const value = tensor.const_data_ptr<float>();
        static_cast<void>(*value);
      },
      "the host touched memory of simulated device 1");
}

TEST_F(SimulatedMemoryDeathTest, WriteOfTheHostEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const at::Tensor tensor = at::ones({4}, device());
  EXPECT_DEATH(*static_cast<volatile float*>(tensor.data_ptr()) = 1, "the host touched memory of simulated device 0");
}

TEST_F(SimulatedMemory, WithoutAValueIsNan) {
  EXPECT_TRUE(at::isnan(at::empty({1000}, device())).all().item<bool>());
  at::Tensor first = at::ones({1000}, device());
  first = at::Tensor();
  EXPECT_TRUE(at::isnan(at::empty({1000}, device())).all().item<bool>());
}

TEST_F(SimulatedMemory, EndsWithAnErrorAndIsUsableAfterwards) {
  set_memory(8);
  const at::Tensor most = bytes(6 * kMebibyte);
  try {
    bytes(3 * kMebibyte);
    FAIL() << "3 MiB were free";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "sim out of memory. Tried to allocate 3.00 MiB. Device sim:0 has a total capacity of "
                 "8.00 MiB of which 2.00 MiB is free.");
  }
  EXPECT_NO_THROW(bytes(2 * kMebibyte));
  EXPECT_NO_THROW(bytes(8 * kMebibyte, 1)) << "each device has its own";
}

TEST_F(SimulatedMemory, FreedMemoryIsFoundAgainInOtherSizes) {
  set_memory(8);
  for (int round = 0; round < 20; ++round) {
    const at::Tensor one = bytes(3 * kMebibyte), two = bytes(3 * kMebibyte);
    at::Tensor three = bytes(2 * kMebibyte);
    three = at::Tensor();
    EXPECT_NO_THROW(bytes(kMebibyte));
  }
  EXPECT_NO_THROW(bytes(8 * kMebibyte));
}

TEST_F(SimulatedMemory, IsCounted) {
  auto& allocator = *c10::getDeviceAllocator(c10::DeviceType::PrivateUse1);
  allocator.emptyCache();
  allocator.resetPeakStats(0);
  const auto before = allocator.getDeviceStats(0);
  {
    const at::Tensor tensor = bytes(kMebibyte + 1);
    const auto with = allocator.getDeviceStats(0);
    EXPECT_EQ(with.allocated_bytes[0].current, before.allocated_bytes[0].current + kMebibyte + 512);
    EXPECT_EQ(with.requested_bytes[0].current, before.requested_bytes[0].current + kMebibyte + 1);
    EXPECT_EQ(with.allocation[0].current, before.allocation[0].current + 1);
    EXPECT_GE(with.reserved_bytes[0].current, with.allocated_bytes[0].current);
  }
  const auto freed = allocator.getDeviceStats(0);
  EXPECT_EQ(freed.allocated_bytes[0].current, before.allocated_bytes[0].current);
  EXPECT_EQ(freed.allocated_bytes[0].peak, before.allocated_bytes[0].current + kMebibyte + 512);
  EXPECT_EQ(freed.num_ooms, before.num_ooms);
  allocator.emptyCache();
  EXPECT_EQ(allocator.getDeviceStats(0).reserved_bytes[0].current, before.reserved_bytes[0].current);
  const auto [free, total] = allocator.getMemoryInfo(0);
  EXPECT_EQ(total, size_t{1} << 30);
  EXPECT_EQ(free, total - static_cast<size_t>(before.reserved_bytes[0].current));
}

TEST_F(SimulatedMemory, IsFoundByLibTorchsGeneralFunctions) {
  EXPECT_EQ(at::accelerator::getAccelerator(), c10::DeviceType::PrivateUse1);
  EXPECT_EQ(at::accelerator::deviceCount(), 4);
  const at::Tensor tensor = bytes(512, 1);
  EXPECT_GE(at::accelerator::getDeviceStats(1).allocated_bytes[0].current, 512);
  EXPECT_NO_THROW(at::accelerator::emptyCache());
  EXPECT_NO_THROW(at::accelerator::synchronizeDevice(1));
}

TEST_F(SimulatedMemory, IsLentByDlpack) {
  const at::Tensor tensor = at::ones({2, 3}, device(1));
  const at::Tensor same = at::fromDLPack(at::toDLPack(tensor));
  EXPECT_EQ(same.device(), device(1));
  same.add_(1);
  EXPECT_TRUE(tensor.eq(2).all().item<bool>());
}

// A copy on another stream still reads the memory when it is freed and given to a new tensor.
at::Tensor copied_while_freed(bool record, c10::Device device, const c10::impl::VirtualGuardImpl& impl) {
  at::Tensor source = at::full({1000}, 5, device), copy;
  impl.synchronizeDevice(0);
  const c10::Stream side = impl.getStreamFromGlobalPool(device);
  {
    const c10::StreamGuard guard(side);
    copy = at::empty({1000}, device);
    impl.synchronizeStream(side);
    library().run_kernel(0, 100000);
    copy.copy_(source, true);
  }
  if (record) source.record_stream(side);
  source = at::Tensor();
  at::full({1000}, 7, device);
  impl.synchronizeDevice(0);
  return copy.cpu();
}

TEST_F(SimulatedMemory, RecordedOnAStreamStaysUntilThatIsThere) {
  EXPECT_TRUE(copied_while_freed(true, device(), impl()).eq(5).all().item<bool>());
}

TEST_F(SimulatedMemory, NotRecordedIsLost) {
  EXPECT_FALSE(copied_while_freed(false, device(), impl()).eq(5).any().item<bool>());
}

TEST_F(SimulatedMemory, StoragesGrowAndAreShared) {
  at::Tensor tensor = at::arange(4, at::TensorOptions(at::kFloat).device(device()));
  tensor.resize_({2, 4});
  EXPECT_TRUE(tensor[0].cpu().equal(at::arange(4, at::kFloat)));
  at::Tensor other = at::empty({0}, device());
  other.set_(tensor.storage(), 1, {3}, {1});
  other.add_(1);
  EXPECT_TRUE(tensor[0].cpu().equal(at::tensor({0.f, 2.f, 3.f, 4.f})));
}

}  // namespace memory_test
}  // namespace simulated_device::tests
