// SPDX-License-Identifier: Apache-2.0
// The devices: what each has, and which is current on a thread.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "memory.hpp"
#include "stream.hpp"

namespace simulated_device {

constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;

class SimulatedDevice {
 public:
  explicit SimulatedDevice(c10::DeviceIndex index) : index_(index), memory_(*this) {}

  c10::DeviceIndex index() const { return index_; }
  Memory& memory() { return memory_; }
  Stream& stream(c10::StreamId id);
  std::vector<Stream*> streams();
  // One of the pool, in turn.
  c10::StreamId next_pool_stream();
  c10::StreamId new_stream();
  void synchronize();
  void stop();

  bool is_lost() const { return loss_.now; }
  void set_lost(bool lost) {
    if (lost) loss_.count++;
    loss_.now = lost;
  }

  std::atomic<int64_t> copies{0};
  std::atomic<int64_t> pageable_copies{0};
  std::atomic<int64_t> host_waits{0};
  std::atomic<int64_t> operators{0};
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> casts{0};

 private:
  const c10::DeviceIndex index_;
  Memory memory_;
  Loss loss_;
  std::mutex mutex_;
  std::map<c10::StreamId, std::unique_ptr<Stream>> streams_;
  int64_t num_from_pool_ = 0;
  int64_t num_new_ = 0;
};

c10::DeviceIndex device_count();
// Throws if there is no such device, if it is lost, or in a forked process, where the streams' threads are missing.
SimulatedDevice& usable_device(c10::DeviceIndex index);
// The device in any condition, for what must not fail.
SimulatedDevice& any_device(c10::DeviceIndex index);
// Stops all threads when the process ends, and marks a forked process.
void prepare_for_exit_and_fork();
bool is_forked();

// Of the calling thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::StreamId current_stream_id(c10::DeviceIndex index);
void set_current_stream_id(c10::DeviceIndex index, c10::StreamId id);
Stream& current_stream(c10::DeviceIndex index);

}  // namespace simulated_device
