// SPDX-License-Identifier: Apache-2.0
// Transport: tagged messages between the ranks of a group over UCX, which are posted and then progressed until done.
// Nothing here waits. Not thread-safe: used by the thread that has claimed the progress engine (see
// progress_engine.hpp).
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/ucx/transport/job_ranks.hpp"
#include "comm/ucx/transport/worker.hpp"

namespace accel::comm::ucx {

// Kinds of messages that never match each other, but that a receive of kPointToPoint takes an offer, too.
enum class Channel : uint8_t {
  kHeader,
  kData,
  kResult,
  kTaken,             // the answer to an offer
  kPointToPoint = 4,  // even, and an offer the number behind it
  kOffer,             // where a message is that the receiver reads itself
  kUnread,            // a message that it could not read there
};

inline constexpr int kMaxRanks = 1 << 16;
inline constexpr int kGroupNumberBits = 14;  // of the groups that a process has at once
inline constexpr int kAnyRank = -1;

// A posted message of a transport, which outlives it. Movable; its destructor leaves the message to UCX.
class Message {
 public:
  Message() = default;
  Message(Message&& other) noexcept { *this = std::move(other); }
  Message& operator=(Message&& other) noexcept;
  ~Message() { release(); }

  // Throws CollectiveError when it failed.
  bool done() { return !handle_ || finish_if_done(); }
  int peer() const { return peer_; }
  // The sender and the length of a point-to-point message that was received.
  int source() const { return source_; }
  bool is_offer() const { return is_offer_; }
  size_t received() const { return received_; }

 private:
  friend class Transport;
  bool finish_if_done();
  void finish(ucs_status_t status);
  void release();

  void* handle_ = nullptr;
  const JobRanks* job_ranks_ = nullptr;
  int rank_ = 0;
  int peer_ = 0;
  int source_ = 0;
  size_t received_ = 0;
  bool receives_ = false;
  bool is_point_to_point_ = false;
  bool is_offer_ = false;
};

// The messages of one group, over the worker that it shares with others.
class Transport {
 public:
  // `group` is the number by which this process knows the group: peers put it on what they send here.
  Transport(Worker& worker, uint32_t group, int rank, int size)
      : worker_(worker), group_(group), rank_(rank), connections_(static_cast<size_t>(size)) {}
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // `group` is the peer's number for the group.
  void connect(int peer, const std::string& address, uint32_t group, bool same_host) {
    connections_[static_cast<size_t>(peer)] = {&worker_.connect(address, same_host), group};
  }

  Message send(int peer, const void* data, size_t bytes, Channel channel, uint64_t sequence);
  Message receive(int peer, void* data, size_t bytes, Channel channel, uint64_t sequence);
  // Cancels a receive; settle() completes the cancellation.
  void cancel(Message& message);
  // Progresses what has arrived, for a bounded time even if peers continue to send.
  void settle();

  // By which errors name ranks.
  void set_job_ranks(JobRanks job_ranks) { job_ranks_ = std::move(job_ranks); }
  // Ranks to which UCX has lost the connection.
  std::vector<int> broken() const;

 private:
  struct Connection {
    const Endpoint* endpoint = nullptr;
    uint32_t group = 0;
  };

  Worker& worker_;
  const uint32_t group_;
  const int rank_;
  JobRanks job_ranks_;
  std::vector<Connection> connections_;  // by rank
};

}  // namespace accel::comm::ucx
