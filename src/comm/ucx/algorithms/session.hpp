// Session: the communication of one running collective. Its algorithm posts messages and waits for them, with the
// deadline and the failure checks of the group; ranks of one host can use their host segment instead.
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
#include "comm/ucx/host/futex.hpp"
#include "comm/ucx/host/host_segment.hpp"
#include "comm/ucx/host/shared_memory.hpp"
#include "comm/ucx/transport/hosts.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

class GroupProgress;

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
  Session(GroupProgress& group, Buffers& buffers, const Header& header, const char* call,
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

  int rank() const;
  int size() const;
  const Hosts& hosts() const;
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
  // Whether this session is inside wait_for(), and the futex to sleep on then.
  bool waits_for_segment() const { return awaited_.has_value(); }
  FutexWait begin_sleep() const;
  bool has_arrived() const;
  void end_sleep() const;
  // Throws if a rank is lost, the deadline has passed, or the group has failed.
  void check();
  void throw_if_failed() const;

  // Memory that the peers can map, where there is a segment; see shared_memory.hpp.
  RemoteAddress remote_address(const void* data, size_t bytes);
  char* map(int peer, const RemoteAddress& address);

  // Counted from the first look at it, in a wait that is not over at once: to look at the clock takes 25 ns.
  const Deadline& deadline() const {
    if (!deadline_) deadline_.emplace(timeout_);
    return *deadline_;
  }
  // A little later, so that a rank of this host that waits for another host can report that first.
  Deadline grace() const { return deadline().later(std::chrono::milliseconds(300)); }
  // The ranks whose messages are missing, or that are behind in the host segment.
  std::vector<int> unanswered();
  std::string title() const { return ucx::title(header_, call_); }

 private:
  int rank_of(int member) const;

  GroupProgress& group_;
  Buffers& buffers_;
  const Header& header_;
  const char* const call_;
  const std::chrono::milliseconds timeout_;
  mutable std::optional<Deadline> deadline_;
  struct Awaited {
    HostSegment::Stage stage;
    uint32_t step;
    int peer;
  };
  std::optional<Awaited> awaited_;
  const Team* team_ = nullptr;  // null: all ranks
};

}  // namespace accel::comm::ucx
