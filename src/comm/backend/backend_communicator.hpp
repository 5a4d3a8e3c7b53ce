// SPDX-License-Identifier: Apache-2.0
// Communicator over c10d backends, one for each device type. Blocking calls bypass c10d's dispatcher.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "os/interruption.hpp"

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace accel::comm {

class DeviceWaiter;
class WatchedCall;

class BackendCommunicator final : public Communicator {
 public:
  // A group of one rank, for tensors on these device types.
  explicit BackendCommunicator(const std::vector<c10::DeviceType>& devices = {c10::DeviceType::CPU},
                               std::shared_ptr<StepTimes> step_times = nullptr);
  // The backends by their names, see backend_names.hpp. A group that is created from another one shares its
  // connections. stays_on_host: all ranks are on this host, for a group that is created from none.
  BackendCommunicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
                      const std::string& backend_name, const BackendCommunicator* parent = nullptr,
                      bool stays_on_host = false);
  ~BackendCommunicator() override;

  std::shared_ptr<Work> post(Collectives collectives, RunsOn thread) override;
  at::Tensor zeros(int64_t numel, const at::TensorOptions& options) const override;
  bool shares_memory() const;                 // see comm/in_place_gather.hpp
  const std::vector<int>& job_ranks() const;  // see comm/job_rank.hpp
  std::shared_ptr<Communicator> make_group(c10::intrusive_ptr<c10d::Store> store, int rank, int size) const override;
  void abort() noexcept override;
  void shutdown() override;

  c10d::Backend* backend_of(c10::DeviceType device) const;  // null where there is none

 protected:
  void post_and_wait(Collectives collectives) override;

 private:
  struct DeviceBackend {
    c10::DeviceType device;
    c10::intrusive_ptr<c10d::Backend> backend;  // null with one rank
    bool runs_calls_here = true;                // a call can run on the calling thread
  };
  using Batch = c10::ArrayRef<const Collective*>;  // collectives that one backend gets together
  struct Posted {
    c10::intrusive_ptr<c10d::Work> work;  // null without a backend: it is complete
    c10::DeviceType device;
    bool messages;
    std::optional<c10::Device> streams;          // that of the streams which wait instead of threads; not for a barrier
    c10d::Backend* backend;                      // null with one rank
    c10::SmallVector<uint64_t, 1> entries = {};  // in the flight record
  };

  DeviceBackend make_backend(c10::DeviceType device, const std::string& name, const BackendCommunicator* parent) const;
  // Calls `post` with each batch, after all collectives have been checked.
  template <typename Post>
  void for_each_batch(Collectives collectives, const Post& post) const;
  const DeviceBackend& device_of(const Collective& collective) const;
  Posted post_batch(const DeviceBackend& device, Batch batch, RunsOn thread) const;
  std::shared_ptr<Work> start_batch(const DeviceBackend& device, Batch batch, RunsOn thread);
  std::shared_ptr<Work> start_on_stream(const DeviceBackend& device, Batch batch, RunsOn thread);
  // Returns when the device has completed the call; for the thread that watches it.
  std::function<void()> watch(Posted posted, const std::shared_ptr<WatchedCall>& call) const;
  // Returns when what this thread does next has the results.
  void finish(const Posted& posted) const;

  bool left_ = false;
  const bool stays_on_host_ = false;
  std::vector<DeviceBackend> devices_;
  const std::unique_ptr<DeviceWaiter> device_waiter_;
  std::optional<Interruptible> interruptible_;  // with more than one rank
};

}  // namespace accel::comm
