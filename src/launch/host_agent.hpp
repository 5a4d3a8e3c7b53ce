// Host agent: the launcher of one host, from the start of the ranks to the exit status.
#pragma once

#include <optional>

#include "launch/guardian.hpp"
#include "launch/job.hpp"
#include "launch/options.hpp"
#include "launch/signal_source.hpp"

namespace accel::launch {

class HostAgent {
 public:
  explicit HostAgent(const LaunchOptions& options);

  // Runs the job to its end, reports failures on stderr, and returns the launcher's exit status.
  int run();

 private:
  void start_job();
  void wait_for_event();
  void handle_signals();
  void stop(int signal);
  void pause();
  int finish();

  const LaunchOptions options_;
  SignalSource signals_;
  const Guardian guardian_;
  std::optional<Job> job_;
  std::optional<int> stop_signal_;  // what the launcher itself was told
};

}  // namespace accel::launch
