// SPDX-License-Identifier: Apache-2.0
// A thread that waits for asynchronous work on a device, for devices without completion callbacks. Starts with the
// first work.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "comm/work.hpp"

namespace accel::comm {

class DeviceWaiter {
 public:
  using Wait = std::function<void()>;

  // `timeout` is that of the wait for a communication stream.
  explicit DeviceWaiter(std::chrono::milliseconds timeout = std::chrono::hours(24 * 365));
  DeviceWaiter(const DeviceWaiter&) = delete;
  DeviceWaiter& operator=(const DeviceWaiter&) = delete;
  ~DeviceWaiter();

  // Calls `post` now, and the function that it returns on the thread. Work completes in the order of posting. The
  // thread has the caller's thread state: grad mode, autocast, and the name of the current call. With a device, which
  // has streams, both run on a communication stream, and the work is complete when the device has completed it.
  std::shared_ptr<Work> start(const std::function<Wait()>& post, std::optional<c10::Device> device = std::nullopt);

  // Waits until all work is complete; returns at once on the thread itself.
  void join();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  // Shared with the thread, which may release the communicator last and then outlives this object.
  const std::shared_ptr<Shared> shared_;
};

}  // namespace accel::comm
