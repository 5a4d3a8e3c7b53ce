// SPDX-License-Identifier: Apache-2.0
// LibTorch's interface of the devices' memory.
#include <c10/core/CachingDeviceAllocator.h>

#include "capture.hpp"
#include "device.hpp"
#include "settings.hpp"

namespace simulated_device {
namespace {

void free_memory(void* address) {
  if (address && !is_forked()) any_device(device_of_address(address)).memory().free(address);
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex index = current_device();
    const c10::Device device(kDeviceType, index);
    void* const data = bytes > 0 ? usable_device(index).memory().allocate(bytes) : nullptr;
    return {data, data, &free_memory, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    Stream& stream = current_stream(device_of_address(to));
    const auto copy = [=] { default_copy_data(operator_address(to), operator_address(from), bytes); };
    if (Capture* const capture = stream.capture()) capture->add(copy, {});
    stream.enqueue(copy);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) any_device(index).memory().empty_cache();
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get()) usable_device(data.device().index()).memory().record_stream(data.get_context(), stream.id());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    return usable_device(index).memory().statistics();
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { usable_device(index).memory().reset_accumulated(); }
  void resetPeakStats(c10::DeviceIndex index) override { usable_device(index).memory().reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    return {usable_device(index).memory().free_bytes(), static_cast<size_t>(settings().memory_bytes)};
  }
};

}  // namespace

c10::DeviceAllocator& allocator() {
  static Allocator* const allocator = new Allocator;
  return *allocator;
}

}  // namespace simulated_device
