// SPDX-License-Identifier: Apache-2.0
// The sends and receives of a group: those that wait to be posted, and those that are under way. They complete in any
// order.
//
// Note: large messages inside a host. UCX would copy them twice, in small parts, for each of which both ranks have to
// run. Instead the sender offers the place of its tensor, the receiver reads it there, in one copy, and answers. Where
// the system refuses that, the receiver asks for the message, which UCX sends then.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "comm/ucx/progress/call_memory.hpp"
#include "comm/ucx/progress/call_queue.hpp"
#include "comm/ucx/progress/group_failure.hpp"
#include "comm/ucx/progress/posted_calls.hpp"
#include "comm/ucx/transport/peers.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

class MessageQueue {
 public:
  // `mutex` is the engine's.
  MessageQueue(std::mutex& mutex, const Peers& peers, Transport& transport, const GroupFailure& failure)
      : mutex_(mutex), peers_(peers), transport_(transport), failure_(failure) {}

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
  void start(PointToPoint& call);
  bool finish_posted();
  // Whether the call has ended.
  bool advance(PointToPoint& call);
  // Throws if it is longer or shorter than the tensor.
  void take_arrived(PointToPoint& call) const;
  // Reads a part of what was offered. False if that is refused: the sender may have become another user, or its memory
  // be of a kind that no other process reads.
  bool read_part(PointToPoint& call) const;
  // Tells the sender that its message was taken, or asks for it.
  void answer(PointToPoint& call, bool is_taken);
  // Whether the receiver of a message asks for it.
  static bool is_asked_for(const PointToPoint& call);
  // Sends it. Whether that has ended.
  bool send_unread(PointToPoint& call);
  void complete(PointToPoint& call, std::exception_ptr error) const noexcept;

  std::mutex& mutex_;
  const Peers& peers_;
  Transport& transport_;
  const GroupFailure& failure_;
  CallQueue<PointToPoint> waiting_;
  std::vector<PointToPoint> posted_;
  uint64_t next_offer_ = 0;
};

}  // namespace accel::comm::ucx
