// SPDX-License-Identifier: Apache-2.0
// Session: the communication of one running collective. Its algorithm posts messages and waits for them, with the
// deadline and the failure checks of the group; ranks of one host can use their host segment instead. What it uses of
// the group it gets as links: a session knows nothing of queues, tasks and threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "comm/ucx/algorithms/header.hpp"
#include "comm/ucx/algorithms/late_deadline.hpp"
#include "comm/ucx/host/host_segment.hpp"
#include "comm/ucx/host/segment_step.hpp"
#include "comm/ucx/host/shared_memory.hpp"
#include "comm/ucx/host/spin.hpp"
#include "comm/ucx/transport/hosts.hpp"
#include "comm/ucx/transport/peers.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

class Session;

// Waits for a session, and knows when the wait is in vain.
class Waiter {
 public:
  // Returns when the session has_arrived(); throws as the two below.
  virtual void wait(Session& session) = 0;
  // Throws if a rank is lost, the deadline has passed, or the group has failed.
  virtual void check(Session& session) = 0;
  virtual void throw_if_failed() const = 0;

 protected:
  ~Waiter() = default;
};

// The parts of its group that a session uses.
struct SessionLinks {
  Transport& transport;
  HostSegment* segment;  // null if the ranks share no memory
  SharedMemory& memory;
  const Peers& peers;
  Spin& spin;
  Waiter& waiter;
};

// A buffer that is reused by later collectives and only grows.
class Scratch {
 public:
  char* reserve(size_t bytes);

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  std::unique_ptr<char, Free> memory_;
  size_t size_ = 0;
};

class Session {
 public:
  struct Buffers {
    std::vector<Message> messages;
    Scratch preambles, chunks, slice, partial;
  };

  // `call` is the function of the C API that led to it; it may be null.
  Session(const SessionLinks& links, Buffers& buffers, const Header& header, const char* call,
          std::chrono::milliseconds timeout);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Receives that are still open (after an error) are cancelled.
  ~Session();

  // During its lifetime the session is among the ranks of a team, which are numbered by their position there.
  class Phase {
   public:
    Phase(Session& session, const Team& team) : session_(session), before_(session.team_) { session.team_ = &team; }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;
    ~Phase() { session_.team_ = before_; }

   private:
    Session& session_;
    const Team* const before_;
  };

  int rank() const { return team_ ? team_->position : links_.peers.rank(); }
  int size() const { return team_ ? team_->size() : links_.peers.size(); }
  const Hosts& hosts() const { return links_.peers.hosts(); }
  const JobRanks& job_ranks() const { return links_.peers.job_ranks(); }  // of all ranks
  Buffers& buffers() { return buffers_; }

  // Each returns the index of the message, for wait().
  size_t send(int peer, const void* data, size_t bytes, Channel channel);
  size_t receive(int peer, void* data, size_t bytes, Channel channel);
  void wait(size_t message);
  void wait_all();

  // Waits until a peer has finished a stage of a step in the host segment.
  void wait_for(int peer, HostSegment::Stage stage, uint32_t step);
  // Null if the ranks share no memory.
  HostSegment* segment() const;
  // For the waiter. Whether the session has what it waits for; throws the error of a message.
  bool has_arrived() const { return step_ ? step_->is_reached() : message_ == nullptr || message_->done(); }
  // The step that it waits for inside wait_for(); otherwise null.
  const SegmentStep* segment_step() const { return step_ ? &*step_ : nullptr; }
  Waiter& waiter() const { return links_.waiter; }

  // Memory that the peers can map, where there is a segment; see shared_memory.hpp.
  SharedMemory& memory() const { return links_.memory; }
  std::shared_ptr<char> map(int peer, const RemoteAddress& address);

  const Deadline& deadline() const { return deadline_.get(); }
  // The ranks whose messages are missing, or that are behind in the host segment.
  std::vector<int> unanswered();
  std::string title() const { return ucx::title(header_, call_); }

 private:
  int rank_of(int member) const { return team_ ? team_->ranks[static_cast<size_t>(member)] : member; }

  const SessionLinks links_;
  Buffers& buffers_;
  const Header& header_;
  const char* const call_;
  LateDeadline deadline_;
  // One of them while it waits.
  std::optional<SegmentStep> step_;
  Message* message_ = nullptr;
  const Team* team_ = nullptr;  // null: all ranks
};

}  // namespace accel::comm::ucx
