// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/device_work.hpp"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/error.hpp"
#include "base/log.hpp"
#include "tensor/device/device_availability.hpp"

namespace accel::tensor {
namespace {

bool is_host(c10::DeviceType type) { return type == c10::DeviceType::CPU || type == c10::DeviceType::Meta; }

// LibTorch's message does not say which device lacks it.
template <typename Call>
auto on_device(c10::Device device, const char* what, const Call& call) {
  require_device(device);
  try {
    return call(c10::impl::VirtualGuardImpl(device.type()));
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (message.find("Backend doesn") == std::string::npos) throw;
    fail(Status::kUnsupported, "device ", device.str(), " cannot ", what, ": its plugin does not implement that");
  }
}

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device(device.type()).index();
}

// Null for an allocator without LibTorch's interface to statistics and cache.
c10::DeviceAllocator* find_allocator(c10::DeviceType type) {
  return is_host(type) ? nullptr : dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
}

c10::DeviceAllocator& allocator_of(c10::Device device) {
  require_device(device);
  auto* const allocator = find_allocator(device.type());
  require(allocator != nullptr, Status::kUnsupported, "device ", device.str(),
          " counts no memory: its allocator is not a c10::DeviceAllocator");
  return *allocator;
}

bool tries_to_pin(c10::DeviceType type) {
  constexpr size_t kBytes = 4096;
  c10::Allocator* allocator = nullptr;
  try {
    at::globalContext().lazyInitDevice(type);
    allocator = at::globalContext().getAcceleratorHooksInterface(type).getPinnedMemoryAllocator();
    return allocator != nullptr && allocator->allocate(kBytes).get() != nullptr;
  } catch (const c10::Error& error) {
    if (allocator == nullptr) return false;  // the device has no such memory
    log(LogLevel::kWarning, "this process gets no page-locked memory for ",
        c10::DeviceTypeName(type, /*lower_case=*/true), ", so that copies wait: ", error.what_without_backtrace(),
        "; see `ulimit -l`");
    return false;
  }
}

}  // namespace

c10::Device current_device(c10::DeviceType type) {
  if (is_host(type)) return c10::Device(type, 0);
  require_device(c10::Device(type));
  return c10::impl::VirtualGuardImpl(type).getDevice();
}

void set_current_device(c10::Device device) {
  if (is_host(device.type()) || !device.has_index()) return require_device(device);
  on_device(device, "become the current one", [&](const auto& guard) { guard.setDevice(device); });
}

void synchronize(c10::Device device) {
  if (is_host(device.type())) return;
  on_device(device, "synchronize", [&](const auto& guard) { guard.synchronizeDevice(index_of(device)); });
}

void empty_cache(c10::DeviceType type) {
  auto* const allocator = find_allocator(type);
  if (allocator != nullptr && allocator->initialized()) allocator->emptyCache();
}

DeviceMemory device_memory(c10::Device device) {
  auto& allocator = allocator_of(device);
  const c10::DeviceIndex index = index_of(device);
  DeviceMemory memory{};
  if (allocator.initialized()) {
    const auto stats = allocator.getDeviceStats(index);
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    memory.allocated = stats.allocated_bytes[all].current;
    memory.peak_allocated = stats.allocated_bytes[all].peak;
    memory.reserved = stats.reserved_bytes[all].current;
    memory.peak_reserved = stats.reserved_bytes[all].peak;
  }
  try {
    const auto [free, total] = allocator.getMemoryInfo(index);
    memory.free = static_cast<int64_t>(free);
    memory.total = static_cast<int64_t>(total);
  } catch (const c10::NotImplementedError&) {  // LibTorch's base class: the device does not tell
  }
  return memory;
}

void reset_peak_memory(c10::Device device) {
  auto& allocator = allocator_of(device);
  if (allocator.initialized()) allocator.resetPeakStats(index_of(device));
}

bool supports_dtype(c10::Device device, c10::ScalarType dtype) {
  if (is_host(device.type())) return true;
  require_device(device);
  c10::DeviceCapability capability;
  try {
    capability = c10::impl::VirtualGuardImpl(device.type()).getDeviceCapability(device);
  } catch (const c10::Error&) {  // LibTorch's base class: the device does not tell
    return true;
  }
  bool found = false;
  capability.forEachSupportedScalarType([&](c10::ScalarType supported) { found = found || supported == dtype; });
  return found;
}

bool can_pin(c10::DeviceType type) {
  enum class Answer : int8_t { kUnknown, kYes, kNo };
  static std::array<std::atomic<Answer>, static_cast<size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)> answers{};
  std::atomic<Answer>& answer = answers.at(static_cast<size_t>(type));
  if (answer.load(std::memory_order_relaxed) == Answer::kUnknown)
    answer = tries_to_pin(type) ? Answer::kYes : Answer::kNo;
  return answer.load(std::memory_order_relaxed) == Answer::kYes;
}

const at::AcceleratorHooksInterface& device_hooks(c10::DeviceType type) {
  require_device(c10::Device(type));
  at::globalContext().lazyInitDevice(type);
  return at::globalContext().getAcceleratorHooksInterface(type);
}

}  // namespace accel::tensor
