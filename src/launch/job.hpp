// SPDX-License-Identifier: Apache-2.0
// Job: one attempt of the ranks of this host, from their start to the end of the last one. Whoever has it polls, and
// may end it early and start another one.
#pragma once

#include <poll.h>

#include <functional>
#include <optional>
#include <vector>

#include "base/deadline.hpp"
#include "launch/job_ending.hpp"
#include "launch/plan/host_ranks.hpp"
#include "launch/plan/options.hpp"
#include "launch/ranks/guardian.hpp"
#include "launch/ranks/rank_process.hpp"
#include "machine/memory_kills.hpp"

namespace accel::launch {

// With this exit status (EX_TEMPFAIL) a rank says that it has stopped on purpose and can be started again later, for
// example behind a checkpoint that it wrote because it got SIGTERM. It is not a failure.
constexpr int kRequeueStatus = 75;

// Changes how a rank is started.
using PrepareRank = std::function<void(RankCommand& command, int local_rank)>;

class Job {
 public:
  // Starts the ranks, whose programs get `signal_mask`. Error(Status::kNotFound) if there is no such program.
  Job(const LaunchOptions& options, const HostRanks& host_ranks, const Guardian& guardian, const sigset_t& signal_mask,
      const PrepareRank& prepare = nullptr);

  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  // Kills what is left of it.
  ~Job();

  const std::vector<RankProcess>& ranks() const { return ranks_; }
  bool is_running() const;
  void send(int signal) const;

  // Adds the descriptors that are read from the ranks and those that show the output; read_outputs() takes the same
  // entries with the events that poll() found.
  void add_outputs(std::vector<pollfd>& polled) const;
  void read_outputs(const pollfd* polled);

  // After SIGCHLD. A rank that failed ends the others.
  void collect_ended();

  // Sends the signal; ranks that still run after `grace` are killed. An earlier call with less time holds.
  void end(int signal, Deadline::Milliseconds grace);
  // When they are killed, if they are being ended.
  const std::optional<Deadline>& grace() const { return ending_.grace(); }
  void kill_late();

  // The local rank that failed first, and not because it got SIGTERM.
  const std::optional<size_t>& first_failure() const { return first_failure_; }
  const ProcessEnd& end_of(size_t local_rank) const { return *ranks_[local_rank].end(); }
  int global_rank(size_t local_rank) const { return host_ranks_.first_rank + static_cast<int>(local_rank); }
  // Says on stderr which rank failed first, and its last lines.
  void report_failure() const;

  // Its log; "" if there are none.
  std::string log_file(size_t local_rank) const;

  // Once none is running: 0, kRequeueStatus, or that of the first failure.
  int exit_status() const;
  bool all_succeeded() const;

 private:
  void start(const LaunchOptions& options, const Guardian& guardian, const sigset_t& signal_mask,
             const PrepareRank& prepare);

  const HostRanks host_ranks_;
  const std::string mark_;
  const MemoryKills memory_kills_;
  const Deadline::Clock::time_point start_ = Deadline::Clock::now();
  const std::string log_dir_;  // empty: none
  OutputRelays shown_;
  std::vector<RankProcess> ranks_;
  std::optional<size_t> first_failure_;
  JobEnding ending_;
};

}  // namespace accel::launch
