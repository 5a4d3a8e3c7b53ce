// A group of ranks and its collectives on bare tensors: what c10d offers, without its dispatcher on the way of blocking
// calls.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/interruption.hpp"
#include "base/step_times.hpp"
#include "comm/collective_error.hpp"
#include "comm/flight_record.hpp"
#include "comm/work_queue.hpp"

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
class Work;
}  // namespace c10d

namespace accel::comm {

class RendezvousEndpoints;

enum class Reduction : int32_t { kSum, kMean, kMin, kMax, kProduct, kAnd, kOr, kXor };

// Throws when it is not defined for the tensor's dtype.
void check_reduction(const at::Tensor& tensor, Reduction reduction);
// Whether all_reduce() can scale the result.
bool scales_in_one_pass(const at::Tensor& tensor, Reduction reduction);

// All ranks make the same calls in the same order, from one thread at a time. Tensors must be contiguous, and those of
// one call on one device, whose type decides which backend carries them. With one rank nothing is sent, and the same
// checks apply. A call blocks; called by way of queue() it is an asynchronous one, and the blocking ones after it wait
// until it has ended.
class Communicator {
 public:
  // One rank, for tensors on these types of devices.
  explicit Communicator(const std::vector<c10::DeviceType>& devices = {c10::DeviceType::CPU},
                        std::shared_ptr<StepTimes> step_times = nullptr);
  // The names of backend plugins as c10d writes them: "ucx", "cuda:nccl,cpu:ucx". A name alone is nccl for CUDA, any
  // other for the CPU.
  Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
               const std::string& backend_name, std::shared_ptr<StepTimes> step_times = nullptr);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& backend_name() const { return backend_name_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // Where the engine's own small tensors are that travel: on the CPU where that has a backend.
  at::Device device() const;
  std::vector<c10::DeviceType> devices() const;  // whose tensors can be sent
  // Throw what every call on that tensor, or with that rank, would.
  void check_tensor(const at::Tensor& tensor) const;
  void check_rank(int rank, const char* name) const;
  // Whether collectives on trees compare the shapes of all ranks first. @accelerate ACCELERATE_DEBUG_MODE
  bool debug() const { return debug_; }
  void set_debug(bool debug) { debug_ = debug; }
  // Null with one rank.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  // How many groups of these ranks were made of this one before.
  int64_t count_group(const std::string& ranks) { return groups_made_[ranks]++; }
  // Where the ranks meet again after a loss; null where they met by other means than rendezvous().
  const std::shared_ptr<const RendezvousEndpoints>& rendezvous_endpoints() const { return rendezvous_endpoints_; }
  void set_rendezvous_endpoints(std::shared_ptr<const RendezvousEndpoints> places) {
    rendezvous_endpoints_ = std::move(places);
  }
  // For the exchange of gradients; null with one rank.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const { return process_group_; }

  // Times `scale` in the same pass: of a sum or mean of numbers that are not whole, else it must be 1.
  void all_reduce(at::Tensor tensor, Reduction reduction, double scale = 1.0);
  void broadcast(at::Tensor tensor, int from);
  void all_gather(const at::Tensor& input, at::Tensor output);
  void reduce_scatter(const at::Tensor& input, Reduction reduction, at::Tensor output);
  void all_to_all(const at::Tensor& input, at::Tensor output);
  void scatter(const at::Tensor& input, int from, at::Tensor output);  // input counts on rank `from` only
  void barrier();

  void send(const at::Tensor& tensor, int to, int tag);
  void receive(at::Tensor tensor, int from, int tag);
  // Messages are not queued: two ranks may start sending to each other and receive afterwards.
  std::shared_ptr<Work> start_send(const at::Tensor& tensor, int to, int tag);
  std::shared_ptr<Work> start_receive(at::Tensor tensor, int from, int tag);

  const std::shared_ptr<WorkQueue>& queue() const { return queue_; }
  const std::shared_ptr<FlightRecord>& flight_record() const { return flight_record_; }
  // Of the training loop, which waits here too. Groups share those of the group that they were made of.
  const std::shared_ptr<StepTimes>& step_times() const { return step_times_; }

  // Fails the calls that wait, here and on the other ranks, and later ones. On any thread; so does interrupt().
  void abort() noexcept;
  // Leaves the group; later calls fail.
  void shutdown();

 private:
  using TorchWork = c10::intrusive_ptr<c10d::Work>;
  struct Lane {
    c10::DeviceType device;
    c10::intrusive_ptr<c10d::Backend> backend;  // null with one rank
  };
  struct Message {
    TorchWork work;
    const Lane* lane;
    uint64_t number;  // in the flight record
  };

  // The one for the tensor's device.
  const Lane& lane_of(const at::Tensor& tensor) const;
  uint64_t begin(const char* operation, const Lane& lane, const at::Tensor& tensor);
  template <typename Options>
  Options options_for(const Lane& lane) const;
  // Every collective goes through here: in its turn, recorded, and with an error that says who did what. `start` hands
  // it to the lane's backend, or does it for one rank, where that is null.
  template <typename Start>
  void run(const char* operation, const at::Tensor& tensor, const Start& start);
  // Returns when the tensors can be used.
  void finish(c10d::Work& work, const Lane& lane) const;
  Message post_send(const at::Tensor& tensor, int to, int tag);
  Message post_receive(at::Tensor tensor, int from, int tag);
  template <typename Post>
  Message post(const char* operation, const at::Tensor& tensor, const Post& start);
  void wait(const Message& message);
  std::shared_ptr<Work> follow(const Message& message);
  // Records the failure. The error that comes back says what the other ranks did, where that can be found out: all of
  // them are in the same place after a collective.
  CollectiveError fail(const CollectiveError& error, uint64_t number, bool collective);

  int rank_ = 0;
  int size_ = 1;
  bool left_ = false;
  bool debug_ = false;
  std::chrono::milliseconds timeout_{0};
  std::string backend_name_;
  std::map<std::string, int64_t> groups_made_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<const RendezvousEndpoints> rendezvous_endpoints_;
  std::vector<Lane> lanes_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  const std::shared_ptr<FlightRecord> flight_record_;
  const std::shared_ptr<StepTimes> step_times_;
  const std::shared_ptr<WorkQueue> queue_;
  std::optional<Interruptible> interruptible_;  // with more than one rank
};

}  // namespace accel::comm
