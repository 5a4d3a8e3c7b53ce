// SPDX-License-Identifier: Apache-2.0
// Host agent: the launcher of one host. It runs the attempts that the coordinator of the job asks for, and ends with
// the status that the coordinator says. On host 0, and for jobs of one host, the coordinator is part of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/coordinator.hpp"
#include "launch/hosts/coordinator_link.hpp"
#include "launch/hosts/host_attempt.hpp"
#include "launch/hosts/remote_launcher.hpp"
#include "launch/hosts/stop_request.hpp"
#include "launch/plan/options.hpp"
#include "launch/ranks/guardian.hpp"
#include "launch/ranks/signal_source.hpp"

namespace accel::launch {

class HostAgent {
 public:
  explicit HostAgent(const LaunchOptions& options);

  // Runs the job to its end, reports failures on stderr, and returns the launcher's exit status.
  int run();

 private:
  void find_coordinator();
  HostDescription description() const;
  void wait_for_event();
  void handle_signals();
  void handle_messages();
  void handle(const Json& message);
  void check_link();

  void start_attempt(const Json& order);
  void end_attempt(const Json& order);
  void send_news();
  void stop(int signal);
  void pause();
  void collect_remotes();
  bool waits_for_others() const;
  void say(const std::string& what) const;
  bool is_alone() const { return options_.hosts.max_hosts == 1; }

  const LaunchOptions options_;
  SignalSource signals_;
  const Guardian guardian_;
  std::optional<Coordinator> coordinator_;
  std::optional<CoordinatorLink> link_;
  std::vector<RemoteLauncher> remotes_;
  std::optional<Deadline> farewell_;  // of the remote launchers, once the job is over
  FileDescriptor lifeline_;           // of an agent that ssh has started: closed when the connection ends
  HostAttempt attempt_;
  StopRequest stop_;           // the request to the launcher itself
  std::optional<int> status_;  // of the job
  std::string reason_;
};

}  // namespace accel::launch
