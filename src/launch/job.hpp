// Job: the ranks of this machine, from their start to the end of the last one.
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.hpp"
#include "launch/guardian.hpp"
#include "launch/options.hpp"
#include "launch/rank_process.hpp"
#include "launch/signal_source.hpp"

namespace accel::launch {

class Job {
 public:
  // Starts the ranks. Error(Status::kNotFound) if there is no such program.
  explicit Job(const LaunchOptions& options);

  // Waits until all ranks have ended, reports failures on stderr, and returns the launcher's exit status.
  int run();

 private:
  void start();
  bool is_running() const;
  void send(int signal);
  void wait_for_event();
  void handle_signals();
  void collect_ended();
  void stop(int signal);
  void pause();
  void end_others(size_t failed);
  void report_failure() const;
  int global_rank(size_t local_rank) const;

  const LaunchOptions options_;
  SignalSource signals_;
  const Guardian guardian_;
  std::vector<RankProcess> ranks_;
  std::optional<size_t> first_failure_;
  std::optional<int> stop_signal_;  // what the launcher itself was told
  std::optional<Deadline> grace_;   // after it those that still run are killed
};

}  // namespace accel::launch
