// SPDX-License-Identifier: Apache-2.0
// Coordinator: decides for all hosts of a job who belongs to it, when an attempt begins and ends, and how the job ends.
// It is part of the launcher of host 0, whose own agent has a link like the others.
#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/hosts/host_description.hpp"
#include "launch/hosts/host_gathering.hpp"
#include "launch/hosts/host_roster.hpp"
#include "launch/hosts/host_socket.hpp"
#include "launch/hosts/job_outcome.hpp"
#include "launch/hosts/message_link.hpp"
#include "launch/plan/host_options.hpp"
#include "launch/ranks/claimed_port.hpp"

namespace accel::launch {

class Coordinator {
 public:
  // A closed `listener` means that this is the only host. `first_port` is that of the ranks of the first attempt; 0: a
  // free one.
  Coordinator(const HostOptions& options, HostDescription own, Listener listener, int first_port);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // The link of this host's own agent, once.
  MessageLink take_own_link() { return roster_.take_own_link(); }

  void add_polled(std::vector<pollfd>& polled) const { roster_.add_polled(polled); }
  // Handles the events that poll() found, in the order of the last add_polled().
  void transfer(const pollfd* polled);
  // When to look again even if nothing comes.
  std::optional<Deadline::Milliseconds> next_look() const;
  // While hosts are awaited: ends the job for this reason.
  void give_up(const std::string& reason);
  // Whether the job is over and all know it.
  bool is_done() const;

 private:
  enum class Phase { kGathering, kRunning, kEnding, kOver };
  using Reason = JobOutcome::Reason;

  void look();
  void receive(HostMember& member);
  void handle(HostMember& member, const Json& message);
  void join(HostMember& member, const Json& hello);
  void take_failure(HostMember& member, const Json& message);
  void take_end(HostMember& member, const Json& message);
  void take_stop(HostMember& member, const Json& message);
  void lose(HostMember& member, const std::string& why);

  void try_to_begin();
  void begin(const std::vector<HostMember*>& hosts);
  void end_attempt(Reason reason, const std::string& why, int signal, Deadline::Milliseconds grace, int cause);
  void decide_after_attempt();
  void finish(int status, const std::string& reason);
  void report_waiting();

  const HostOptions options_;
  HostRoster roster_;
  HostGathering gathering_;
  JobOutcome outcome_;
  Phase phase_ = Phase::kGathering;
  // In kEnding, hosts that have not ended by then are lost. In kOver, nobody is waited for any longer.
  std::optional<Deadline> phase_end_;
  int attempt_ = 0;  // of the ranks, all that began before
  int first_port_;
  std::optional<ClaimedPort> port_;  // of this attempt
};

}  // namespace accel::launch
