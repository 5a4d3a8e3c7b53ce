// The sends and receives of a group: those that wait to be posted, and those that are under way. They complete in any
// order.
#pragma once

#include <exception>
#include <mutex>
#include <vector>

#include "comm/ucx/progress/call_memory.hpp"
#include "comm/ucx/progress/call_queue.hpp"
#include "comm/ucx/progress/group_failure.hpp"
#include "comm/ucx/progress/posted_calls.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

class MessageQueue {
 public:
  // `mutex` is the engine's. `rank` stands in errors.
  MessageQueue(std::mutex& mutex, int rank, Transport& transport, const GroupFailure& failure)
      : mutex_(mutex), rank_(rank), transport_(transport), failure_(failure) {}

  // Under the mutex.
  bool has_waiting() const { return !waiting_.is_empty(); }
  void push(PointToPoint&& call) { waiting_.push(std::move(call)); }

  // The rest is called by the thread that has claimed the engine.
  void post(PointToPoint call);
  // Posts those that wait, and completes those that are done. True if there was one.
  bool progress();
  const std::vector<PointToPoint>& posted() const { return posted_; }
  // Fails all of them. What UCX may still access goes to `memory`.
  void fail_all(const std::exception_ptr& error, CallMemory& memory) noexcept;

 private:
  std::optional<PointToPoint> next();
  bool finish_posted();
  void complete(PointToPoint& call, std::exception_ptr error) const noexcept;
  void take_received(PointToPoint& call) const;

  std::mutex& mutex_;
  const int rank_;
  Transport& transport_;
  const GroupFailure& failure_;
  CallQueue<PointToPoint> waiting_;
  std::vector<PointToPoint> posted_;
};

}  // namespace accel::comm::ucx
