// SPDX-License-Identifier: Apache-2.0
// Communicator: a group of ranks and its collectives on tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective.hpp"
#include "comm/collective_error.hpp"
#include "comm/late_failure.hpp"
#include "comm/posting_order.hpp"
#include "comm/record/flight_record.hpp"
#include "comm/work.hpp"
#include "comm/work_list.hpp"
#include "trace/step_times.hpp"

namespace c10d {
class Store;
}  // namespace c10d

namespace accel::comm {

class RendezvousEndpoints;

// State that the calls of a group share.
struct GroupInfo {
  GroupInfo();
  GroupInfo(const GroupInfo&) = delete;
  GroupInfo& operator=(const GroupInfo&) = delete;
  ~GroupInfo();

  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{0};
  std::string backend_name;
  std::vector<c10::DeviceType> devices;   // devices whose tensors can be sent
  c10::intrusive_ptr<c10d::Store> store;  // null with one rank
  std::shared_ptr<StepTimes> step_times;  // of the training loop, which includes waits for the group
  std::shared_ptr<FlightRecord> flight_record;
  // For the rendezvous after a rank is lost; null if the group was not created by rendezvous().
  std::shared_ptr<const RendezvousEndpoints> rendezvous_endpoints;
  std::map<std::string, int64_t> groups_made;  // subgroups, counted by their ranks
  // Collectives on trees compare the shapes of all ranks first. @accelerate ACCELERATE_DEBUG_MODE
  bool debug = false;
  PostingOrder order;
  const std::shared_ptr<WorkList> works = std::make_shared<WorkList>();
  const std::shared_ptr<LateFailure> late_failure = std::make_shared<LateFailure>();
};

using Collectives = c10::ArrayRef<Collective>;

// The thread that does the work of a call that is started.
enum class RunsOn : uint8_t {
  kBackground,  // one of the backend, or the device, while the caller goes on
  kCaller,      // the caller if the backend can, which saves two wake-ups where nothing can overlap with the call
};

// All ranks make the same calls in the same order, from one thread at a time. The device of a tensor determines its
// backend. With one rank nothing is sent, but arguments are checked in the same way.
class Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  // Posts the collectives as one call and returns its work, which ends when all have. They run after those posted
  // before; sends and receives are unordered, and are posted before the collectives of the call. Messages that cross go
  // in one call on every rank: with NCCL, those of two calls wait for each other. The call keeps the tensors, and
  // writes them until it ends. Throws at once for invalid arguments, before anything is posted, and the late failure of
  // a call before it.
  std::shared_ptr<Work> start(Collectives collectives, RunsOn thread = RunsOn::kBackground);
  // Posts the collectives and waits until they are complete; throws the error of the first that failed. Those of a
  // device whose backend orders streams are complete in the order of this thread's current stream, which then waits
  // instead of the thread; their errors are late failures. A barrier is complete on all ranks.
  void run(Collectives collectives);
  // start() of a call that has its turn (posting_order.hpp).
  virtual std::shared_ptr<Work> post(Collectives collectives, RunsOn thread) = 0;

  // run() of the collectives that the engine uses most.
  void all_reduce(at::Tensor tensor, ReduceOp reduction, double scale = 1.0);
  void broadcast(at::Tensor tensor, int from);
  void all_gather(const at::Tensor& input, at::Tensor output);
  void barrier();
  bool any_rank(bool flag);  // whether it is set on one of them
  void send(const at::Tensor& tensor, int to, int tag);
  void receive(at::Tensor tensor, int from, int tag);

  int rank() const { return group_->rank; }
  int size() const { return group_->size; }
  GroupInfo& group() const { return *group_; }
  const std::shared_ptr<StepTimes>& step_times() const { return group_->step_times; }
  const std::shared_ptr<FlightRecord>& flight_record() const { return group_->flight_record; }
  // Flat zeros, for a tensor that the ranks exchange again and again: in memory that the ranks of a host share if the
  // backend has such, so that collectives need no copies.
  virtual at::Tensor zeros(int64_t numel, const at::TensorOptions& options) const;
  // The device for the engine's own small tensors: the CPU if it has a backend.
  at::Device device() const;
  // Throws if the tensor's device has no backend.
  void check_device(const at::Tensor& tensor) const;

  // A group of some of these ranks, formed through `store`; `rank` is the rank of this process in it.
  virtual std::shared_ptr<Communicator> make_group(c10::intrusive_ptr<c10d::Store> store, int rank, int size) const = 0;

  // Fails open and later calls, here and on the other ranks. On any thread; interrupt() does the same.
  virtual void abort() noexcept {}
  // Leaves the group; later calls fail.
  virtual void shutdown() {}

 protected:
  explicit Communicator(std::shared_ptr<GroupInfo> group) : group_(std::move(group)) {}

  // run() of a call that has its turn.
  virtual void post_and_wait(Collectives collectives) = 0;

  // Shared with open calls.
  const std::shared_ptr<GroupInfo> group_;

 private:
  void wait_for_turn(Collectives collectives) const;
};

}  // namespace accel::comm
