// What an algorithm sees of the transport while one collective runs: it posts messages and waits for them, with the
// deadline and the failure checks of the group. Ranks of one host can use their host segment instead of messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "comm/ucx/futex.hpp"
#include "comm/ucx/header.hpp"
#include "comm/ucx/host_segment.hpp"
#include "comm/ucx/hosts.hpp"
#include "comm/ucx/shared_memory.hpp"
#include "comm/ucx/transport.hpp"

namespace accel::comm::ucx {

class Driver;

// Memory that is kept between collectives and only grows.
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
    Scratch greetings, chunks, slice, partial;
  };

  // `call` is the function of the C API that led to it; it may be null.
  Session(Driver& driver, Buffers& buffers, const Header& header, const char* call, std::chrono::milliseconds timeout);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Receives that are still open (after an error) are cancelled.
  ~Session();

  // While it lives, only the ranks of a team work together, and are counted as they stand there.
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

  // Each returns the number to wait for.
  size_t send(int peer, const void* data, size_t bytes, Channel channel);
  size_t receive(int peer, void* data, size_t bytes, Channel channel);
  void wait(size_t message);
  void wait_all();

  // Waits until a peer has finished a stage of a step in the host segment.
  void wait_for(int peer, HostSegment::Stage stage, uint32_t step);
  // Null where the ranks share none.
  HostSegment* segment() const;
  // Whether wait_for() is what this session waits in, and what can be slept on then.
  bool waits_for_segment() const { return awaited_.has_value(); }
  FutexWait begin_sleep() const;
  bool has_arrived() const;
  void end_sleep() const;
  // Throws when it waits in vain: a rank is lost, a deadline has passed; or when the group was given up.
  void check();
  void throw_if_given_up() const;

  // Memory that the peers can map, where there is a segment; see shared_memory.hpp.
  Place locate(const void* data, size_t bytes);
  char* attach(int peer, const Place& place);

  const Deadline& deadline() const { return deadline_; }
  // A little later: until then a neighbour that waits for another host has said so.
  const Deadline& grace() const { return grace_; }
  // The ranks whose messages are still open, or that are behind in the host segment.
  std::vector<int> unanswered();
  std::string title() const { return ucx::title(header_, call_); }

 private:
  int rank_of(int member) const;

  Driver& driver_;
  Buffers& buffers_;
  const Header& header_;
  const char* const call_;
  Deadline deadline_, grace_;
  struct Awaited {
    HostSegment::Stage stage;
    uint32_t step;
    int peer;
  };
  std::optional<Awaited> awaited_;
  const Team* team_ = nullptr;  // null: all ranks
};

}  // namespace accel::comm::ucx
