// SPDX-License-Identifier: Apache-2.0
// The link of a host's launcher to the coordinator of the job: connects until the deadline, proves what both must know,
// and keeps the signs of life going.
#pragma once

#include <poll.h>

#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "launch/hosts/heartbeat.hpp"
#include "launch/hosts/host_description.hpp"
#include "launch/hosts/message_link.hpp"
#include "launch/plan/host_options.hpp"

namespace accel::launch {

class CoordinatorLink {
 public:
  // To a coordinator of another process.
  CoordinatorLink(const HostOptions& options, HostDescription own);
  // To that of this process, made already.
  CoordinatorLink(const HostOptions& options, MessageLink made);

  pollfd polled() const;
  void transfer(short events);
  // When to look again even if nothing comes.
  std::optional<Deadline::Milliseconds> next_look() const;
  // Messages of the coordinator, once this host has joined.
  std::optional<Json> next();
  void send(const Json& message);

  bool is_joined() const { return state_ == State::kJoined; }
  // Why this host cannot join, or is not in the job any more; empty while it may.
  const std::string& end() const { return end_; }
  // Tries again, for as long as the coordinator may be there.
  void join_again();

 private:
  enum class State { kPausing, kConnecting, kShaking, kJoined, kOver };

  void look();
  void connect();
  void retry(const std::string& problem);
  void shake_hands(const Json& message);
  void fail_for_good(const std::string& why);
  std::string address() const;

  const HostOptions& options_;
  const HostDescription own_;
  const bool is_local_;
  State state_ = State::kPausing;
  FileDescriptor connecting_;
  std::optional<MessageLink> link_;
  Deadline deadline_;  // for joining
  Deadline step_{Deadline::Milliseconds(0)};
  Deadline next_report_;
  Heartbeat heartbeat_;
  bool is_challenged_ = false;
  bool has_been_in_ = false;
  std::string problem_, end_;
};

}  // namespace accel::launch
