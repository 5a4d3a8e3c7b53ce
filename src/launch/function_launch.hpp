// SPDX-License-Identifier: Apache-2.0
// FunctionLaunch: a function of this program runs in several processes of it. The signals of the program are left
// alone, and nothing is written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/status.hpp"
#include "launch/job.hpp"
#include "launch/plan/options.hpp"
#include "launch/ranks/claimed_port.hpp"
#include "launch/ranks/guardian.hpp"
#include "launch/ranks/pipe.hpp"
#include "os/interruption.hpp"

namespace accel::launch {

// The process of a rank gets these.
struct LaunchedRank {
  int local_rank = 0;
  int report = -1;   // where it writes how its function has ended
  int release = -1;  // closed by the launcher when all ranks of the machine are done
};

// A rank whose function has succeeded stays until all are done: rank 0 has the store, which others may still need.
void report_end(const LaunchedRank& rank, int status, const std::string& message);

// The variable of a process that was started to run a function: the marker, and the numbers of LaunchedRank, with ':'
// in between.
inline constexpr char kLaunchedVariable[] = "ACCEL_LAUNCHED";

struct FunctionOptions {
  LaunchOptions job;
  // Runs the function in the process of a rank and reports its end; returns the exit status. Empty: the program is
  // started again, with `marker` in its variable.
  std::function<int(const LaunchedRank& rank)> body;
  std::string marker;
  int max_restarts = 0;
  Deadline::Milliseconds monitor_interval{100};
  std::optional<Deadline> deadline;
};

// The rank that failed first.
struct FunctionFailure {
  int rank = 0;
  int status = 0;  // of its function, negative; 0 if that has not returned
  std::string message;
};

class FunctionLaunch {
 public:
  explicit FunctionLaunch(FunctionOptions options);

  // Waits for all ranks. Nothing: all succeeded. Errors are Status::kTimeout and Status::kCancelled.
  std::optional<FunctionFailure> run();

 private:
  struct Report {
    int status = 0;
    std::string message;
  };

  void start();
  void prepare(RankCommand& command, int local_rank) const;
  void watch();
  void wait_for_event();
  void read_reports();
  void check_reports();
  std::optional<size_t> first_failure() const;
  FunctionFailure describe_failure(size_t local_rank) const;

  const FunctionOptions options_;
  const InterruptionFlag interruption_;
  const Guardian guardian_;
  int restarts_ = 0;
  Pipe reports_, release_;
  std::optional<ClaimedPort> port_;
  std::optional<Job> job_;
  std::vector<std::optional<Report>> reported_;  // of each rank
  std::optional<size_t> silent_end_;  // a rank that ended as if it had succeeded, and did not run the function
  std::optional<Status> stopped_;     // by the caller
};

}  // namespace accel::launch
