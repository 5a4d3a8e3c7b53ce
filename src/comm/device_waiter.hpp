// Waits for what was posted to a device, which calls nobody back, on a thread that begins with the first of it.
#pragma once

#include <c10/core/DeviceType.h>

#include <functional>
#include <memory>
#include <optional>

#include "comm/work.hpp"

namespace accel::comm {

class DeviceWaiter {
 public:
  using Wait = std::function<void()>;

  // What is posted runs beside the computation on devices of the type, where that has streams, and has ended when the
  // device is done with it.
  explicit DeviceWaiter(std::optional<c10::DeviceType> streams = std::nullopt);
  DeviceWaiter(const DeviceWaiter&) = delete;
  DeviceWaiter& operator=(const DeviceWaiter&) = delete;
  ~DeviceWaiter();

  // Calls `post` now, and what that returns on the thread. What was posted first ends first. The thread has the
  // settings of this one: gradients, autocast, and what the call is named.
  std::shared_ptr<Work> start(const std::function<Wait()>& post);

  // Waits for the end of all, but not on the thread itself.
  void join();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  // The thread may be the one that lets go of the communicator, and outlives this then.
  const std::shared_ptr<Shared> shared_;
};

}  // namespace accel::comm
