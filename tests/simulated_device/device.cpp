// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <array>
#include <cstdlib>

#include "settings.hpp"

namespace simulated_device {
namespace {

constexpr int64_t kPoolStreams = 8;
constexpr int kDeviceLost = 1;

std::atomic<bool> forked{false};
thread_local c10::DeviceIndex thread_device = 0;
thread_local std::array<c10::StreamId, kMaxDevices> thread_streams{};

// Never destroyed, because tensors may be freed at any time until the process ends.
std::array<std::unique_ptr<SimulatedDevice>, kMaxDevices>& devices() {
  static auto* const devices = [] {
    auto* const made = new std::array<std::unique_ptr<SimulatedDevice>, kMaxDevices>;
    for (int index = 0; index < kMaxDevices; ++index)
      (*made)[index] = std::make_unique<SimulatedDevice>(static_cast<c10::DeviceIndex>(index));
    return made;
  }();
  return *devices;
}

void stop_all() {
  if (forked) return;
  for (auto& device : devices()) device->stop();
}

}  // namespace

Stream& SimulatedDevice::stream(c10::StreamId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& stream = streams_[id];
  if (!stream) stream = std::make_unique<Stream>(index_, id, loss_);
  return *stream;
}

std::vector<Stream*> SimulatedDevice::streams() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Stream*> all;
  for (auto& [id, stream] : streams_) all.push_back(stream.get());
  return all;
}

c10::StreamId SimulatedDevice::next_pool_stream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return 1 + num_from_pool_++ % kPoolStreams;
}

c10::StreamId SimulatedDevice::new_stream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return 1 + kPoolStreams + num_new_++;
}

void SimulatedDevice::synchronize() {
  for (Stream* stream : streams()) stream->synchronize();
}

void SimulatedDevice::stop() {
  for (Stream* stream : streams()) stream->stop();
}

c10::DeviceIndex device_count() { return static_cast<c10::DeviceIndex>(settings().device_count); }

SimulatedDevice& any_device(c10::DeviceIndex index) { return *devices().at(static_cast<size_t>(index)); }

SimulatedDevice& usable_device(c10::DeviceIndex index) {
  if (index < 0) index = thread_device;
  const c10::Device name(kDeviceType, index);
  TORCH_CHECK(index < device_count(), "there is no device ", name, "; devices 0 to ", device_count() - 1, " exist");
  TORCH_CHECK(!forked, "device ", name, " cannot be used in a forked process; start the process with exec");
  SimulatedDevice& device = any_device(index);
  if (device.is_lost())
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kDeviceLost, "device " + name.str() + " is lost");
  return device;
}

void prepare_for_exit_and_fork() {
  devices();
  std::atexit(stop_all);
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

bool is_forked() { return forked; }
c10::DeviceIndex current_device() { return thread_device; }
void set_current_device(c10::DeviceIndex index) { thread_device = index; }
c10::StreamId current_stream_id(c10::DeviceIndex index) { return thread_streams.at(static_cast<size_t>(index)); }
void set_current_stream_id(c10::DeviceIndex index, c10::StreamId id) {
  thread_streams.at(static_cast<size_t>(index)) = id;
}
Stream& current_stream(c10::DeviceIndex index) { return any_device(index).stream(current_stream_id(index)); }

}  // namespace simulated_device
