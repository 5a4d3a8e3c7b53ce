// Coordinator: decides for all hosts of a job who belongs to it, when an attempt begins and ends, and how the job ends.
// It is part of the launcher of host 0, whose own agent has a link like the others.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/hosts/host_description.hpp"
#include "launch/hosts/host_socket.hpp"
#include "launch/hosts/message_link.hpp"
#include "launch/plan/host_options.hpp"
#include "launch/ranks/claimed_port.hpp"

namespace accel::launch {

class Coordinator {
 public:
  // A closed `listener` means that this is the only host. `first_port` is that of the ranks of the first attempt; 0: a
  // free one.
  Coordinator(const HostOptions& options, HostDescription own, Listener listener, int first_port);
  ~Coordinator();

  // The link of this host's own agent, once.
  MessageLink take_own_link();

  void add_polled(std::vector<pollfd>& polled) const;
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
  enum class EndReason { kNone, kFailure, kMembership, kStop };
  struct Member;
  using Members = std::vector<std::unique_ptr<Member>>;

  void look();
  void accept_all();
  void receive(Member& member);
  void handle(Member& member, const Json& message);
  void shake_hands(Member& member, const Json& message);
  void join(Member& member, const Json& hello);
  void refuse(Member& member, const std::string& reason);
  void take_failure(Member& member, const Json& message);
  void take_end(Member& member, const Json& message);
  void take_stop(Member& member, const Json& message);
  void lose(Member& member, const std::string& why);
  void remove_closed();

  void gather();
  void try_to_begin();
  void begin(const std::vector<Member*>& hosts);
  void end_attempt(EndReason reason, const std::string& why, int signal, Deadline::Milliseconds grace, int cause);
  void decide_after_attempt();
  void finish(int status, const std::string& reason);
  void report_waiting();

  std::vector<Member*> joined() const;
  std::string missing() const;
  bool is_anybody_running() const;

  const HostOptions options_;
  const HostDescription own_;
  Listener listener_;
  Members members_;
  std::unique_ptr<MessageLink> own_link_;

  Phase phase_ = Phase::kGathering;
  int attempt_ = 0;  // of the ranks, all that began before
  int restarts_ = 0;
  int first_port_;
  std::optional<ClaimedPort> port_;  // of this attempt
  Deadline join_deadline_;
  std::optional<Deadline> last_call_;
  Deadline next_report_;
  EndReason end_reason_ = EndReason::kNone;
  std::optional<Deadline> ending_;  // after it hosts that have not ended are lost
  int failed_status_ = 0;
  std::optional<int> stop_signal_;
  bool all_finished_ = true;  // every rank of the attempt with 0
  bool asks_for_requeue_ = false;
  bool is_hopeless_ = false;  // a restart would fail, too
  std::optional<Deadline> farewell_;
};

}  // namespace accel::launch
